"""The recognisers that find names of persons: one for each language that has one.

>>> spans("I spoke with Tom Hargreaves.", "en")     # where the model `rampart` has been fetched
[(13, 27)]

English, French, German, Indonesian, Spanish: Rampart, a small BERT that marks what identifies a person (National Design
Studio, CC BY 4.0), by ONNX Runtime. Russian: slovnet's recogniser on navec's vectors. Japanese: UniDic's marks of
family names and given names. Chinese: jieba's marks, if there is a frequent family name with two characters of given
names. For the other languages no recogniser is available as a package; `find_names` finds names after a courtesy title
in every language. `benchmarks/names.py` measures the precision and recall of each.

Precision comes first: a missed name leaves the corpus unchanged, but a passage whose product, law or disease is masked
answers nothing. Names that are part of a term are therefore kept: `Parkinson's disease`.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

from airgen import models
from airgen.components.registry import load_extra, missing_extra
from airgen.text.sentences import sentences

Span = tuple[int, int]

RAMPART, SLOVNET = "rampart", "natasha-ner"
_PURPOSE = "finding names of persons (clean.names)"
_RECOGNISERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(("en", "de", "es", "fr", "id"), (RAMPART, ("onnxruntime", "tokenizers"))),
    "ru": (SLOVNET, ("navec", "slovnet")),
    "ja": ("", ("fugashi", "unidic_lite")),
    "zh": ("", ("rjieba",)),
}
"""Language -> the catalogue model and the packages that find names in it."""


class Missing(NamedTuple):
    """A package or a model that is missing: what it is, and the command that gets it."""

    what: str
    command: str

    @property
    def line(self) -> str:
        """Return both as one line."""
        return f"{self.what}: {self.command}"


def has_recogniser(language: str) -> bool:
    """Return whether names are found in this language without a courtesy title."""
    return language in _RECOGNISERS


def missing(language: str) -> list[Missing]:
    """Return each package and model that is missing to find names in the language."""
    if language not in _RECOGNISERS:
        return []
    model, packages = _RECOGNISERS[language]
    errors = [error for package in packages if (error := missing_extra(package, _PURPOSE)) is not None]
    parts = [Missing(f"{_PURPOSE} needs the package {error.package}", error.command) for error in errors]
    if model and not models.fetched(model):
        what = f"clean.names: the model {model} has not been fetched (or set names: keep)"
        parts.append(Missing(what, f"airgen fetch {model}"))
    return parts


def spans(text: str, language: str) -> list[Span]:
    """Return the positions of personal names in order; none for a language without a recogniser.

    Raises MissingExtra if a package is missing, and ModelError if a model is missing.
    """
    if language not in _RECOGNISERS:
        return []
    model, _ = _RECOGNISERS[language]
    if model == RAMPART:
        names = _rampart(text, language)
    else:
        names = {"ru": _slovnet, "ja": _unidic, "zh": _jieba}[language](text)
    return [span for span in names if not _is_term(text, *span)]


# Words that turn a neighbouring name into a term, such as a disease, a law or a place.
_BEHIND = re.compile(
    r"(?:['’]s?)?[\s-](?i:disease|syndrome|law|act|theorem|equation|effect|test|score|index|scale|method|algorithm|transform"
    r"|filter|constant|number|inequality|distribution|model|coefficient|bill|amendment|street|avenue|road|university|college"
    r"|hospital|clinic|institute|foundation|museum|prize|award|inc|ltd|corp|gmbh|company|&|bridge|airport|stadium|river|lake"
    r"|mountain|island|county|krankheit|syndrom|gesetz|satz|straße|stiftung|preis|gmbh)\b"
    r"|(?:病|症|定理|定律|变换|変換|综合征|症候群|の定理|の法則|社|株式会社|公司|手机|集团|大学|路|区|市)"
)
_BEFORE = re.compile(
    r"(?i:\b(?:maladie|syndrome|loi|théorème|rue|avenue|lycée|hôpital|université|prix|enfermedad|síndrome|ley|teorema|calle"
    r"|plan|hospital|universidad|premio|penyakit|sindrom|jalan|болезн\w+|синдром\w*|закон\w*|теорем\w+|улиц\w+|метод\w*"
    r"|уравнени\w+|преобразовани\w+|morbus|university|lake|mount|port|fort|saint|st\.)\s+(?:d['’]|de\s+|du\s+|von\s+)?)$"
)


def _is_term(text: str, begin: int, end: int) -> bool:
    first = text[begin:end].split()[0]
    return bool(
        _BEHIND.match(text, end) or _BEFORE.search(text, max(begin - 24, 0), begin) or _BEFORE.fullmatch(f"{first} ")
    )


# -- Rampart ----------------------------------------------------------------------------------------------------------

_WINDOW_CHARACTERS, _OVERLAP_CHARACTERS = 480, 64  # characters, as its authors run it
_MAX_TOKENS = 512
_KEPT_WINDOWS = 256  # because the sections of a page repeat its title, and the pages of a site some sentences
_MIN_WORD_PROBABILITY = 0.5  # the minimum score for each word of a name
_MIN_SINGLE_WORD_PROBABILITY = 0.95  # the minimum score for a name of a single word
_WHOLE = re.compile(r"[^\W\d_](?:[\w’'-]*\w)?")
_PARTICLES = frozenset(
    ["von", "van", "de", "der", "den", "del", "di", "da", "la", "le", "bin", "al", "el", "dos", "du", "ter"]
)


def _rampart(text: str, language: str) -> Iterator[Span]:
    """Yield runs of capitalised words that contain a given name or surname according to the model."""
    odds = [0.0] * len(text)
    for start, stop in _windows(text, language):
        for begin, end, value in _token_probabilities(text[start:stop]):
            for at in range(start + begin, start + end):
                odds[at] = max(odds[at], value)
    # The model reads lower case, and so may take a common word for a name in an unusual sentence.
    words = [match.span() for match in _WHOLE.finditer(text) if match[0][0].isupper()]
    at = 0
    while at < len(words):
        begin, end = words[at]
        probability = _mean(odds[begin:end])
        at += 1
        if probability < _MIN_WORD_PROBABILITY:
            continue
        has_several_words = False
        while at < len(words):
            last_begin, last_end = words[at - 1]
            if not _joins_words(text[end : words[at][0]], initial=last_end - last_begin == 1):
                break
            value = _mean(odds[slice(*words[at])])
            if value < _MIN_WORD_PROBABILITY and (has_several_words or probability < _MIN_SINGLE_WORD_PROBABILITY):
                break
            end, has_several_words, at = words[at][1], True, at + 1
            probability = max(probability, value)
        if has_several_words or probability >= _MIN_SINGLE_WORD_PROBABILITY:
            yield begin, end


def _windows(text: str, language: str) -> Iterator[Span]:
    """Yield the spans that the model reads: sentences that may contain a name, joined if they follow each other.

    The model takes nearly all the time, and half of the sentences of many texts have no word that could be a name.
    """
    from airgen.text.query_form import function_words  # imports NumPy, which reading the settings of a corpus must not

    common = function_words(language).union(filter(str.islower, _WHOLE.findall(text)))
    start = stop = at = 0
    for sentence in sentences(text, language):
        begin = text.index(sentence, at)
        at = begin + len(sentence)
        if not _may_name(sentence, common):
            continue
        if stop and (begin - stop > 2 or at - start > _WINDOW_CHARACTERS):  # 2: spaces, not a sentence
            yield from _overlapping(start, stop)
            start, stop = begin, at
        else:
            start, stop = (start if stop else begin), at
    yield from _overlapping(start, stop)


def _may_name(sentence: str, common: Collection[str]) -> bool:
    """Return whether a sentence has a capitalised word that is not common, other than single acronyms."""
    upper = False  # whether the word before is in capitals
    for word in (match[0] for match in _WHOLE.finditer(sentence)):
        if not word[0].isupper() or len(word) == 1 or word.lower() in common:
            upper = False
        elif not word.isupper() or upper:
            return True
        else:
            upper = True
    return False


def _overlapping(start: int, stop: int) -> Iterator[Span]:
    """Yield windows of a span, with an overlap if it is longer than one window."""
    step = _WINDOW_CHARACTERS - _OVERLAP_CHARACTERS
    for begin in range(start, max(stop - _OVERLAP_CHARACTERS, start + 1) if stop > start else start, step):
        yield begin, min(begin + _WINDOW_CHARACTERS, stop)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _joins_words(text: str, *, initial: bool) -> bool:
    """Return whether the text between two words joins them into one name: a space, particles, or the dot of an
    initial."""
    if initial:
        text = text.removeprefix(".")
    return text[:1] in (" ", "\u00a0") and len(text) < 16 and set(text.split()) <= _PARTICLES


@lru_cache(_KEPT_WINDOWS)
def _token_probabilities(text: str) -> list[tuple[int, int, float]]:
    """Return each token of a window with the probability that it belongs to a name."""
    numpy = load_extra("numpy", _PURPOSE)
    session, tokenizer, names = _load_rampart()
    encoded = tokenizer.encode(text)
    array = numpy.array([encoded.ids[:_MAX_TOKENS]], numpy.int64)
    inputs = {"input_ids": array, "attention_mask": numpy.ones_like(array), "token_type_ids": numpy.zeros_like(array)}
    logits = session.run(["logits"], inputs)[0][0].astype(numpy.float64)
    odds = numpy.exp(logits - logits.max(axis=-1, keepdims=True))
    share = odds[:, names].sum(axis=-1) / odds.sum(axis=-1)
    offsets = zip(encoded.offsets, share.tolist(), strict=False)
    return [(begin, end, value) for (begin, end), value in offsets if end > begin]


@cache
def _load_rampart() -> tuple[Any, Any, list[int]]:
    onnxruntime = load_extra("onnxruntime", _PURPOSE)
    tokenizers = load_extra("tokenizers", _PURPOSE)
    folder = models.path(RAMPART)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the corpus is cleaned on all cores, with one part per core
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    labels = json.loads((folder / "config.json").read_text(encoding="utf-8"))["id2label"]
    return session, tokenizer, [int(key) for key, label in labels.items() if label[2:] in ("GIVEN_NAME", "SURNAME")]


# -- slovnet ----------------------------------------------------------------------------------------------------------


def _slovnet(text: str) -> Iterator[Span]:
    """Yield personal names of at least two words, since a single word is too often a term, a place or a brand."""
    for span in _load_slovnet()(text).spans:
        words = text[span.start : span.stop].split()
        if span.type == "PER" and len(words) > 1:
            yield span.start, span.stop


@cache
def _load_slovnet() -> Any:
    navec, slovnet = load_extra("navec", _PURPOSE), load_extra("slovnet", _PURPOSE)
    folder = models.path(SLOVNET)
    recogniser = slovnet.NER.load(str(folder / "slovnet_ner.tar"))
    recogniser.navec(navec.Navec.load(str(folder / "navec.tar")))
    return recogniser


# -- Dictionaries -----------------------------------------------------------------------------------------------------


def _unidic(text: str) -> Iterator[Span]:
    """Yield family names that are followed by a given name or an honorific."""
    tagger, at = _load_unidic(), 0
    words: list[tuple[int, int, str]] = []
    for word in tagger(text):
        begin = text.index(word.surface, at)
        at = begin + len(word.surface)
        words.append((begin, at, word.feature.pos4 if word.feature.pos3 == "人名" else ""))
    for (begin, end, kind), (start, stop, other) in zip(words, [*words[1:], (0, 0, "")], strict=True):
        if kind == "姓" and other == "名" and start == end:
            yield begin, stop
        elif kind in ("姓", "名") and re.match("さん|氏|様|君|先生", text[end : end + 2]):
            yield begin, end


@cache
def _load_unidic() -> Any:
    return load_extra("fugashi", _PURPOSE).Tagger()


_FAMILY = frozenset(
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何高林罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏魏吕丁任沈姚卢姜崔钟谭陆汪范金石廖贾夏"
    "韦付方白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严覃武戴莫孔向汤"
)
_GIVEN = frozenset(
    "伟芳娜敏静丽强磊军洋勇艳杰娟涛超秀霞刚桂英华玉萍红娥玲芬燕云兰凤洁梅琳素珍莉桃颖燕露瑶怡婵雁蓓仪荷丹蓉眉君琴蕊薇菁梦岚苑婕馨瑗琰韵融园艺咏卿聪澜"
    "纯毓悦昭冰爽琬茗羽希宁欣飘育滢馥筠柔竹霭凝晓欢霄枫芸菲寒伊亚宜可姬舒影荔枝思丽婷雪慧倩琪晶妍茜秋珊莎锦黛青倩婉娴瑾颖斌宇浩凯健俊帆鹏博文志"
    "建国庆新元海波辉力康星光天达安岩中茂进林有坚和彪诚先敬震振壮会思群豪心邦承乐绍功松善厚裕河哲江超亮政谦亨奇固轮翰朗伯宏言若鸣朋梁栋维启克伦翔旭鹏"
    "泽晨辰士以家致树炎德行时泰盛雄琛钧冠策腾楠榕航弘民明永世广义兴良海山仁贵福生龙元全胜学祥才发武利清飞彬富顺信子成少基晓小春雨佳嘉诗宗耀祖根长荣"
)
_SPLIT = frozenset("·•・")  # a separator between the parts of a foreign name, which may be cut anywhere


def _jieba(text: str) -> Iterator[Span]:
    """Yield frequent family names with two characters of given names, which jieba tags as a person.

    Most names of two characters are words: 王子, 高达, 陆生.
    """
    at = 0
    before: Span | None = None  # a family name on its own
    for word, tag in _load_jieba()(text):
        begin = text.find(word, at)
        if begin < 0:
            continue
        start, at = begin, begin + len(word)
        if before is not None and before[1] == begin and len(word) == 2:
            start = before[0]
        before = (begin, at) if word in _FAMILY else None
        name = text[start:at]
        beside = {text[start - 1 : start], text[at : at + 1]}
        known = len(name) == 3 and name[0] in _FAMILY and set(name[1:]) <= _GIVEN
        if known and tag.startswith("nr") and not beside & _SPLIT:
            yield start, at


@cache
def _load_jieba() -> Callable[[str], list[tuple[str, str]]]:
    tag: Callable[[str], list[tuple[str, str]]] = load_extra("rjieba", _PURPOSE).tag
    return tag
