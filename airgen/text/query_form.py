"""Classify a query by its punctuation and first words: a question, keywords, or in the first person.

    asks("how do bees make honey", "en")       # True: no mark is needed
    asks("bees make honey", "en")              # False
    asks("jinsi nyuki", "sw")                  # None: airgen has no question words of this language

Only clear cases count, because a false alarm costs a call.
"""

import re
from functools import cache
from itertools import pairwise

from airgen.settings.languages import SPACELESS
from airgen.text.analysis.languages import STOPWORDS
from airgen.text.words import count_words, words

_MARKS = ("?", "\uff1f", "\u061f")
_JSON_BRACKETS = {"}": "{", "]": "["}
# Words that make a question wherever they come first; `_VERBS` are verbs that do so when they come first.
_ASKING = {
    "en": "what what's whats how how's why who who's whom whose when where where's which",
    "de": "was wie warum wieso weshalb wer wen wem wessen wann wo wohin woher welche welcher welches welchen welchem "
    "wofür womit wodurch woran worin worauf wozu wovon wieviel",
    "fr": "que quoi qui quel quelle quels quelles comment pourquoi quand où combien est-ce qu'est-ce",
    "es": "qué que cómo como cuándo cuando dónde donde quién quien quiénes cuál cual cuáles cuánto cuánta cuántos "
    "cuántas cuanto cuantos",
    "id": "apa apakah bagaimana mengapa kenapa siapa siapakah kapan dimana berapa berapakah manakah",
    "ru": "что как почему зачем кто кого кому чем чей когда где куда откуда какой какая какое какие каков какова "
    "каковы сколько можно",
}
_VERBS = {
    "en": "is are was were do does did can could should will would has have may must isn't aren't doesn't don't can't",
    "de": "ist sind war waren kann können darf dürfen muss müssen hat haben gibt wird werden soll sollen sollte",
    "fr": "est sont peut peut-on faut-il doit-on y-a-t-il",
    "es": "es son se puede pueden hay debe deben tiene",
    "id": "bisakah adakah",
    "ru": "ли",
}
_IDEOGRAPHIC = re.compile(
    "什么|怎么|怎样|如何|为什么|为何|谁|哪|何时|何处|几[个种年月天次]|多少|多久|多长|多大|吗|呢$|是否|能否|有没有|会不会|是不是"
)
# For languages whose question words have no fixed position: a word that makes a question wherever it occurs. Without
# such a word, nothing is known, since a verb can also ask.
_ASKS_ANYWHERE = {
    "ja": re.compile(
        r"(?:ですか|ますか|せんか|のか|るか|だろうか|でしょうか|とは何|何か|いくら|どうやって)$|^(?:なぜ|どの|どう|何|誰|いつ|どこ)"
    ),
    "ko": re.compile(
        r"(?:까|나요|가요|는가|은가|인가|던가|느냐|니)$|(?:^|\s)(?:왜|어떻게|언제|어디|무엇|누가|몇|어떤|얼마나)(?:\s|$)"
    ),
    "ar": re.compile(r"^(?:هل|ما|ماذا|لماذا|كيف|متى|أين|كم|من هو|من هي|أي)\s"),
    "fa": re.compile(r"(?:^|\s)(?:آیا|چرا|چگونه|چطور|کدام|چقدر|چند|کجا|چیست|کیست)(?:\s|$)"),
    "hi": re.compile(r"(?:^|\s)(?:क्या|क्यों|कैसे|कौन|कितना|कितनी|कितने|कब|कहाँ|कहां|किस|किन)(?:\s|$)"),
    "bn": re.compile(r"(?:^|\s)(?:কি|কী|কেন|কীভাবে|কিভাবে|কোন|কত|কখন|কোথায়|কোথায়|কে)(?:\s|$)"),
}
_OPENING = re.compile(r"^[\W_]*(\w+(?:['’-]\w+)*)(?:\s+(\w+))?")
# A claim or a heading may begin with a question word: "When heated, it bends". It is a question if a verb of `_VERBS`
# follows.
_AMBIGUOUS = {
    "en": {"when", "where", "which", "who", "whose", "what"},
    "es": {"que", "como", "cuando", "donde", "cual"},
}
_MAX_KEYWORDS = 8
_FIRST_PERSON = {
    "en": "i i'm im i've my me mine we our us",
    "de": "ich mein meine meinen meinem meiner meines mir mich wir unser unsere uns",
    "fr": "je j mon ma mes me moi nous notre nos",
    "es": "yo mi mis me nosotros nuestro nuestra nos tengo",
    "id": "saya aku kami kita ku",
    "zh": "我",
    "ru": "я мой моя мои меня мне мы наш нас",
}


@cache
def _word_set(table: str, language: str) -> frozenset[str]:
    return frozenset({"asking": _ASKING, "verbs": _VERBS, "person": _FIRST_PERSON}[table].get(language, "").split())


def has_question_mark(text: str) -> bool:
    """Return whether a text ends with a question mark."""
    return text.rstrip(" \"'”’»)").endswith(_MARKS)


def answer_line(text: str) -> str:
    """Return what a model wrote on one line, with single spaces.

    A closing bracket at its end that nothing opens goes, as a small model ends its JSON inside of a string.

    >>> answer_line("visceral amyloidosis  treatment}")
    'visceral amyloidosis treatment'
    """
    line = " ".join(text.split())
    while line and (opening := _JSON_BRACKETS.get(line[-1])) and line.count(line[-1]) > line.count(opening):
        line = line[:-1].rstrip()
    return line


def asks(text: str, language: str) -> bool | None:
    """Return whether a text is a question, with or without a question mark.

    Returns None if it has no question mark and the language's question words are unknown.
    """
    if has_question_mark(text):
        return True
    if language == "zh":
        return bool(_IDEOGRAPHIC.search(text))
    if language in _ASKS_ANYWHERE:
        return True if _ASKS_ANYWHERE[language].search(text.strip(" .。।")) else None
    opening = _OPENING.match(text.casefold().replace("’", "'"))
    if not _word_set("asking", language):
        return None
    if opening is None:
        return False
    first, second = opening[1], opening[2] or ""
    if first in _word_set("verbs", language):
        return True
    if first in _AMBIGUOUS.get(language, ()):
        return second in _word_set("verbs", language) or (first in ("what", "which", "who") and bool(second))
    return first in _word_set("asking", language)


def clearly_asks(text: str, language: str) -> bool:
    """Return whether a text ends with a question mark or begins with a question word. One that begins with a verb may
    tell a problem: "can't connect to the server".
    """
    opening = _OPENING.match(text.casefold().replace("’", "'"))
    begins_with_verb = opening is not None and opening[1] in _word_set("verbs", language)
    return has_question_mark(text) or (bool(asks(text, language)) and not begins_with_verb)


def asks_somewhere(text: str, language: str) -> bool | None:
    """Return the same as `asks`, but allow other words before the question word: "in git how do I undo a commit"."""
    answer, tokens = asks(text, language), text.casefold().replace("’", "'").split()
    if answer is False:
        verbs = _word_set("verbs", language) | {"to"}
        return any(word in _word_set("asking", language) and after in verbs for word, after in pairwise(tokens))
    return answer


def is_keywords(text: str, language: str) -> bool:
    """Return whether a text is a list of keywords: a few words that are no sentence, question or first-person text."""
    if asks(text, language) or count_words(text, language) > _MAX_KEYWORDS or text.rstrip().endswith((".", "。", "!")):
        return False
    return not in_first_person(text, language)


def in_first_person(text: str, language: str) -> bool:
    """Return whether a text is in the first person."""
    if language == "zh":
        return "我" in text
    return bool({word.casefold() for word in words(text.replace("’", "'"), language)} & _word_set("person", language))


# Verbs with which a question ends, and which people do not type among keywords: "how does a bimetal strip work".
_IDLE = {"en": "work works happen happens mean means"}
_AROUND = "\"'“”‘’«»„,;:!?"


def as_keywords(question: str, language: str) -> str:
    """Turn a question into keywords, as in a search box: its words in order, without function and question words.

    Returns "" for a language without spaces, whose segments are not what people type as separate words.

    >>> as_keywords("How does a tar archive leave .git folders out?", "en")
    'tar archive leave .git folders out'
    """
    if language in SPACELESS:
        return ""
    idle = function_words(language) | frozenset(_IDLE.get(language, "").split())
    stripped = (word.strip(_AROUND) for word in question.split())
    return " ".join(word for word in stripped if word and word.casefold().replace("’", "'") not in idle).rstrip(".")


@cache
def function_words(language: str) -> frozenset[str]:
    """Return the words of a language that are not about a subject: stop words, question words, I and we."""
    small = STOPWORDS.get(language, frozenset())
    return small.union(*(_word_set(table, language) for table in ("asking", "verbs", "person")))
