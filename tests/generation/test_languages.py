"""A job in each of the paper's thirteen languages: instructions in English name the language of the answer."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from job_maker import LEXICAL

from airgen.job import RunResult
from airgen.llms.base import Reply, Request
from airgen.settings.languages import LANGUAGES, language_name
from airgen.text.language_check import wrong_language

JOB = LEXICAL

# Two documents about bees and bridges in each language.
DOCUMENTS = {
    "ar": ("يجمع النحل الرحيق من الزهور في الربيع ويصنع منه العسل في الخلية قبل الشتاء الطويل.",
           "بُني الجسر القديم من الحجر فوق النهر ويحتاج إلى ترميم بعد كل فيضان كبير."),
    "bn": ("মৌমাছি বসন্তকালে ফুল থেকে মধু সংগ্রহ করে এবং শীতের আগে মৌচাকে জমা রাখে।",
           "পুরানো সেতুটি নদীর উপরে পাথর দিয়ে তৈরি এবং প্রতিটি বন্যার পরে মেরামত করতে হয়।"),
    "de": ("Die Bienen sammeln im Frühling den Nektar der Blüten und lagern den Honig vor dem Winter im Stock.",
           "Die alte Brücke aus Stein steht über dem Fluss und muss nach jedem Hochwasser ausgebessert werden."),
    "en": ("Bees collect the nectar of blossoms in spring and store the honey in the hive before the winter.",
           "The old bridge of stone stands across the river and must be repaired after every flood."),
    "es": ("Las abejas recogen el néctar de las flores en primavera y guardan la miel en su colmena antes del frío.",
           "El viejo puente de piedra cruza el río y hay que repararlo después de cada inundación."),
    "fa": ("زنبورها در بهار شهد گل‌ها را جمع می‌کنند و عسل را پیش از زمستان در کندو نگه می‌دارند.",
           "پل سنگی قدیمی روی رودخانه ساخته شده است و پس از هر سیل باید تعمیر شود."),
    "fr": ("Les abeilles récoltent le nectar des fleurs au printemps et gardent le miel dans la ruche avant l'hiver.",
           "Le vieux pont de pierre traverse la rivière et doit être réparé après chaque inondation."),
    "hi": ("मधुमक्खियाँ वसंत में फूलों से रस इकट्ठा करती हैं और सर्दियों से पहले छत्ते में शहद जमा करती हैं।",
           "पत्थर का पुराना पुल नदी के ऊपर बना है और हर बाढ़ के बाद उसकी मरम्मत करनी पड़ती है।"),
    "id": ("Lebah mengumpulkan nektar bunga pada musim semi dan menyimpan madu di dalam sarang sebelum musim dingin.",
           "Jembatan batu tua itu berada di atas sungai dan harus diperbaiki setelah setiap banjir besar."),
    "ja": ("ミツバチは春に蜜を集め、夏に巣へ運び、冬に食べます。",
           "川には古い石の橋があり、洪水のたびに壊れ、大工が直します。"),
    "ko": ("꿀벌은 봄에 꽃에서 꿀을 모아 겨울이 오기 전에 벌집 안에 저장해 둡니다.",
           "오래된 돌다리는 강 위에 놓여 있으며 홍수가 날 때마다 수리해야 합니다."),
    "ru": ("Пчёлы весной собирают нектар цветов и хранят мёд в улье до наступления долгой зимы.",
           "Старый каменный мост стоит над рекой, и его нужно чинить после каждого наводнения."),
    "zh": ("蜜蜂在春天采集花蜜，冬天之前酿成蜂蜜，储存在蜂巢里面。",
           "古老的石桥横跨河流，每次洪水过后，都必须修理和加固。"),
}  # fmt: skip


def test_every_language_of_the_paper_is_tried() -> None:
    assert set(DOCUMENTS) == set(LANGUAGES)


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_a_job_in_each_language(
    language: str, run: Callable[..., RunResult], folder: Path, model_says: Callable[..., None]
) -> None:
    rows = [{"id": str(number), "title": "", "text": text} for number, text in enumerate(DOCUMENTS[language])]
    (folder / "small.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    corpus = folder / "small.yaml"
    corpus.write_text(corpus.read_text("utf-8").replace("language: en", f"language: {language}"), encoding="utf-8")

    wanted: list[Request] = []

    def says(request: Request) -> Reply | None:
        """The query is the document's own sentence, so only its language is looked at."""
        if request.stage == "judgment":
            return Reply("3", prompt_tokens=1, completion_tokens=1)
        if request.stage != "query":
            return None
        wanted.append(request)
        text = next(text for text in DOCUMENTS[language] if text in "".join(one.content for one in request.messages))
        return Reply(json.dumps({"query": text}), prompt_tokens=1, completion_tokens=1)

    model_says(says)
    free = "generation: {lengths: {10to20: 1}, types: {claim: 1}, rewrites: 0, max_copied_words: 999, "
    free += "hard_negatives: [0, 0]}"
    result = run(changes={"task: qa": f"task: qa\nlanguage: {language}", "target: 4": f"target: 2\n{free}"})
    assert result.manifest is not None
    assert wanted and all(language_name(language) in request.messages[0].content for request in wanted)
    lines = (result.directory / "dataset" / "queries.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    assert texts and not any(wrong_language(text, language) for text in texts)
