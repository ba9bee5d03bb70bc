"""Detect whether a text is a statement, that is, whether it has a predicate, like a claim and unlike a heading.

    states("Aspirin lowers the risk of a stroke", "en")               # True
    states("Effects of aspirin on the risk of a stroke", "en")        # False
    states("Madu berbahaya bagi bayi", "id")                          # None: "honey dangerous for babies" is a sentence

No parser is used, only a closed class of verbs, the language's verb endings, and the position of its verbs. The result
is False only if both kinds of evidence are missing, because a false alarm costs a call. Arabic, Bengali, Indonesian and
Russian have sentences without verbs, and Chinese verbs have no distinct form. In these languages, False also requires a
sign of a heading, such as "effect of" in the position of its head.
"""

import re
from collections.abc import Callable
from functools import cache

_PUNCTUATION = ' \t.,;:!()[]{}"“”„«»‹›…،؛।。、'


@cache
def _of(text: str) -> frozenset[str]:
    return frozenset(text.split())


# -- English ----------------------------------------------------------------------------------------------------------

_EN_AUXILIARY = (
    "is are was were am be been has have had do does did can cannot could may might must will would shall "
    "should isn't "
    "aren't wasn't weren't hasn't haven't hadn't don't doesn't didn't can't couldn't won't wouldn't shouldn't it's "
    "that's there's he's she's they're we're you're i'm they've we've"
)
# Forms in -s that are rarely nouns, and stems whose forms in -s are also plurals.
_EN_SURE = (
    "accelerates accepts accompanies achieves acts adapts adds affects aggravates allows alters appears applies "
    "arises "
    "attenuates avoids becomes begins behaves belongs binds blocks brings carries catches ceases changes circulates "
    "coincides combines comes comprises confers confirms considers consists contains continues contributes converts "
    "correlates creates decreases deletes delivers demonstrates depends derives destroys determines develops "
    "deteriorates differs disappears disrupts divides doubles drives eats eliminates enables encodes encourages ends "
    "enhances ensures enters exceeds exerts exhibits exists expands explains exposes expresses extends "
    "facilitates fails "
    "falls feeds follows forms functions gains generates gets gives goes governs grows happens has harms heals helps "
    "hides hinders holds hurts ignores impairs implies improves includes indicates induces inhibits initiates "
    "interacts "
    "interferes involves keeps kills knows lacks lasts lays leads learns leaves lets lies lives loses lowers "
    "maintains "
    "makes means mediates meets migrates modulates moves needs occurs offers opens originates outweighs owns passes "
    "pays performs plays possesses predicts prefers prevents proceeds produces prolongs promotes protects proves "
    "provides pulls pushes puts reaches reads receives recognizes reduces reflects refuses regulates relates "
    "releases "
    "relies remains removes renders replaces represents represses requires resembles restores restricts results "
    "retains returns reveals rises runs says secretes seems sees sends serves shares shows shrinks slows "
    "spreads stands "
    "starts stays stems stimulates stops strengthens suffers suggests suppresses survives takes targets tells tends "
    "accumulates acquires causes counteracts drinks employs experiences flows increases mirrors segregates switches "
    "thinks thrives transfers triggers triples turns undergoes uses varies wants weakens worsens yields writes works"
)
_EN_ALSO_NOUNS = _of(
    "acts blocks causes changes decreases drinks ends experiences feeds flows forms functions gains helps "
    "increases leaves "
    "lives mirrors moves needs offers plays pulls pushes results returns rises runs shares shows stands starts "
    "stays stems "
    "stops switches targets transfers triggers turns uses wants works yields"
)
_EN_PAST = (
    "gave took found made led rose fell grew became began kept lost won held came went saw wrote built sent "
    "sold spent "
    "met brought bought caught taught thought stood broke chose drove felt got knew lay paid ran said told "
    "understood "
    "wore ate drank spoke swam flew shrank sank threw drew"
)
_EN_NOT_BEFORE = _of(
    "a an the this these those its their his her our my your of in on at by for from with without to into between "
    "among during under over about and or as than per via using"
)
_EN_DETERMINERS = _of(
    "a an the this these those its their his her our my your no all most more some any each every both only not that "
    "it them him us when if because faster slower better worse longer less"
)
_EN_PLURAL = _of("they we you people men women children mice bacteria data police cattle sheep fish who i")
_EN_PARTICIPLES = _of("need speed feed seed breed weed indeed hundred kindred red bed embed exceed proceed succeed")


def _english(tokens: list[str]) -> bool:
    """Return whether the text has a finite verb outside relative clauses."""
    auxiliary, sure, past = _of(_EN_AUXILIARY), _of(_EN_SURE), _of(_EN_PAST)
    bases = {"go", "do", "have"} | {
        word[:-2] if word.endswith(("ches", "shes", "sses")) else word[:-1] for word in sure
    }
    kept: list[str] = []
    skip = 0
    for at, word in enumerate(tokens):
        if at and word in ("that", "which", "who"):
            skip = 3 if any(after in auxiliary for after in tokens[at + 1 : at + 2]) else 2
        if skip:
            skip -= 1
        else:
            kept.append(word)
    for at, word in enumerate(kept):
        before, after = kept[at - 1] if at else "", kept[at + 1] if at + 1 < len(kept) else ""
        if word in auxiliary or word in past:
            return True
        if not at or before in _EN_NOT_BEFORE:
            continue
        if word in sure and (word not in _EN_ALSO_NOUNS or after not in ("of", "and", "or", "")):
            return True
        if (
            word.endswith(("izes", "ises", "yzes", "ifies", "nds", "ates"))
            and after
            and after not in ("of", "and", "or")
        ):
            return True
        if len(word) > 4 and word.endswith("ed") and word not in _EN_PARTICIPLES:
            return True
        plural = before in _EN_PLURAL or (before.endswith("s") and not before.endswith(("ss", "us", "is", "ics")))
        if word in bases and (plural or after in _EN_DETERMINERS or (before.endswith("ly") and at > 1)):
            return True
        if word.endswith("s") and not word.endswith(("ss", "us", "is", "ics")) and after in _EN_DETERMINERS:
            return True
    return False


# -- German, French, Spanish ------------------------------------------------------------------------------------------

_DE_VERBS = (
    "ist sind war waren bin sei wäre hat haben hatte hatten habe wird werden wurde wurden würde kann können konnte "
    "konnten muss müssen musste soll sollen sollte sollten darf dürfen durfte will wollen wollte mag möchte gab "
    "ging kam "
    "nahm fand stieg fiel sank wuchs ließ blieb begann verlor gewann schrieb verdarb bot zog trug schuf brach sprach "
    "traf stand lag sah hielt starb lief rief hing gilt weiß tut braucht"
)
_DE_NO_VERBS = _of(
    "nicht mit seit statt fast erst jetzt weit oft selbst samt laut sehr gut kalt warm alt hart leicht recht "
    "schlecht "
    "direkt bereits stets meist zuerst zuletzt überhaupt anhand insgesamt vielleicht dort damit somit hiermit "
    "womit nächst "
    "längst echt exakt intelligent konstant relevant resistent effizient konsequent gesamt bekannt spät fest feucht "
    "den einen keinen ihren seinen meinen deren gegen neben zwischen wegen unten oben innen außen zusammen wegen "
    "sondern allen beiden vielen wenigen anderen einigen jeden diesen jenen ohnehin eben gerade draußen"
)
_DE_NOT_BEFORE = _of(
    "zu der die das den dem des ein eine einen einem einer eines von mit bei im in am an auf aus nach für durch über "
    "unter vor zum zur ohne gegen sehr"
)


def _german(tokens: list[str]) -> bool:
    """Return whether the text has a verb: a lower-case word with a verb ending that is not an adjective before a
    noun."""
    verbs = _of(_DE_VERBS)
    for at, word in enumerate(tokens):
        if word.casefold() in verbs:
            return True
        if not at or word != word.lower() or word in _DE_NO_VERBS or tokens[at - 1].casefold() in _DE_NOT_BEFORE:
            continue
        after = tokens[at + 1] if at + 1 < len(tokens) else ""
        if len(word) > 3 and word.endswith("t") and not after[:1].isupper():
            if not word.startswith("ge") or after:
                return True
        elif len(word) > 3 and word.endswith("t"):  # "verhindert Brüche", and not "von gut getestet Brüchen"
            return True
        if len(word) > 3 and word.endswith(("en", "te", "ern", "eln")) and not after[:1].isupper():
            return True
        if len(word) > 4 and word.endswith(("te", "ten")) and not tokens[at - 1][:1].islower():  # "dann suchten Firmen"
            return True
    return False


_FR_VERBS = (
    "est sont était étaient fut furent a ont avait avaient sera seront serait peut peuvent pouvait pourrait "
    "doit doivent devrait "
    "fait font faisait va vont vient viennent tient dit voit sait savent veut veulent faut vaut reste n'est "
    "n'ont n'a "
    "c'est il elle ils elles on réduit réduisent diminue augmente améliore aggrave provoque entraîne favorise "
    "empêche "
    "permet protège contient dépend agit accélère ralentit affecte aide atteint commence comprend conduit connaît "
    "consiste constitue contribue contrôle correspond coûte crée cause détermine détruit devient donne double dure "
    "élimine entre exige existe explique facilite fonctionne fournit garantit grandit implique inclut indique induit "
    "inhibe joue limite lutte maintient manque meurt modifie montre naît nécessite nuit offre oblige obtient ouvre "
    "paie parle passe perd permettait porte possède précède présente prévient produit prolonge prouve provient "
    "reçoit "
    "remplace rend renforce repose représente requiert résulte retarde réussit sert soigne souffre soutient stimule "
    "subit suffit suit supprime survient survit tue touche transforme travaille triple utilise varie vit volent "
    "vivent "
    "semble semblent décide décident utilise propose demeure "
    "meurent perdent suivent boivent mangent coûtent servent gagnent produisent réagissent"
)
_FR_NOT_BEFORE = _of(
    "le la les l' un une des du de d' au aux en par pour sur avec sans sous et ou à ce cette son sa leur"
)

_FR_ARTICLES = _of("le la les un une des son sa ses leur leurs ce cette ces au aux")
_FR_NO_VERBS = _of(
    "entre contre comme malgré toute tout chez avant pendant durant devant suivant sauf même dont outre "
    "notamment parmi "
    "lorsque quand puisque autre"
)


def _french(tokens: list[str]) -> bool:
    verbs = _of(_FR_VERBS)
    if tokens and tokens[0] in ("il", "elle", "ils", "elles", "on"):
        return True
    for at, word in enumerate(tokens):
        if at and tokens[at - 1] in ("qui", "que"):
            continue
        plain = re.sub(r"^(?:[ncsjmtl]|qu)['’]", "", word)
        if word.startswith(("n'", "n’", "s'", "s’")) or (at and tokens[at - 1] in ("ne", "se")):
            return True
        if at and tokens[at - 1] in _FR_NOT_BEFORE:
            continue
        after = tokens[at + 1] if at + 1 < len(tokens) else ""
        objects = after in _FR_ARTICLES or after.startswith("l'")
        if at and len(plain) > 3 and plain.endswith(("e", "t", "d", "a")) and objects and plain not in _FR_NO_VERBS:
            return True
        if (at or plain != word) and (plain in verbs or word in verbs):
            return True
        if (
            at
            and len(plain) > 4
            and re.search(r"(?:[aâ]it|aient|èrent|irent|era|eront|erait|ira|iront|issent)$", plain)
        ):
            return True
        if (
            at
            and len(plain) > 4
            and plain.endswith("ent")
            and not plain.endswith(("ment", "rent", "cent", "dent", "gent"))
        ):
            return True
    return False


_ES_VERBS = (
    "es son era eran está están estaba fue fueron será serán sería ha han había hay tiene tienen tenía puede "
    "pueden podía "
    "podría debe deben debería hace hacen hizo va van viene vienen dice dicen ve sabe quiere reduce reducen "
    "disminuye "
    "aumenta mejora empeora provoca causa favorece impide permite protege contiene depende actúa acelera frena "
    "afecta "
    "ayuda alcanza comienza comprende conduce conoce consiste constituye contribuye controla corresponde cuesta crea "
    "determina destruye da dan daba dio duplica dura elimina entra exige existe explica facilita funciona "
    "garantiza crece "
    "implica incluye indica induce inhibe juega limita mantiene falta muere modifica muestra nace necesita perjudica "
    "ofrece obliga obtiene abre paga habla pasa pierde lleva posee precede presenta previene produce prolonga prueba "
    "proviene recibe reemplaza refuerza reposa representa requiere resulta retrasa sirve sufre sostiene estimula "
    "suprime sobrevive mata toca transforma trabaja triplica utiliza usa varía vive viven mueren pierden siguen "
    "beben "
    "usa usan suele suelen inhiben poseen cuenta cuentan participa emplean muestran comen sirven ganan producen "
    "consumen necesitan causan aumentan ayudan gasta dañan daña"
)
_ES_NOT_BEFORE = _of("el la los las un una unos unas de del al en por para sobre con sin y o a su sus este esta entre")

_ES_ARTICLES = _of("el la los las lo un una unos unas al su sus este esta estos estas más")
_ES_NO_VERBS = _of("sobre entre durante mediante hacia desde contra ante como cuando donde toda para")


def _spanish(tokens: list[str]) -> bool:
    verbs = _of(_ES_VERBS)
    for at, word in enumerate(tokens):
        before, after = tokens[at - 1] if at else "", tokens[at + 1] if at + 1 < len(tokens) else ""
        if before == "que":
            continue
        if not at:
            if word in ("fue", "es", "hay", "está", "son") or (len(word) > 3 and word.endswith(("aron", "ieron", "ó"))):
                return True
            continue
        if before in ("se", "no") or word in ("se", "es", "son"):
            return True
        if before in _ES_NOT_BEFORE:
            continue
        if word in verbs or (
            len(word) > 3 and re.search(r"(?:ó|aron|ieron|aba|aban|ían|ría|ará|erá|irá|arán|erán)$", word)
        ):
            return True
        if (
            len(word) > 3
            and word.endswith(("a", "e", "an", "en"))
            and after in _ES_ARTICLES
            and word not in _ES_NO_VERBS
        ):
            return True
    return False


# -- languages whose verb comes last ----------------------------------------------------------------------------------

_JA_VERB = re.compile(r"(?:[るすくぐむぶぬうつただんねよ]|しい|ない|たい|(?<![違扱願思狙救匂装問商使])い|である)$")
_KO_VERB = re.compile(r"(?:다|요|죠|지|네|까|음|함|됨|임|큼|짐|있어|없어|해)$")
_KO_NOUN = re.compile(
    r"(?:개요|필요|수요|주요|중요|책임|모임|마음|다음|처음|얼음|게임|범죄|조짐|바다|이해|공해|방지|유지|금지|"
    r"편지|정지|의지|토지|복지|여지)$"
)
_HI_VERB = _of(
    "है हैं था थी थे थीं हो हूँ हूं होगा होगी होंगे नहीं गया गई गए दिया दी दिए लिया ली लिए किया की-है हुआ हुई "
    "हुए सका सकी सके "
    "चाहिए रहा "
    "रही रहे"
)
_HI_ENDING = re.compile(
    r"(?:ता|ते|ती|तीं|गा|गे|गी|ाया|ायी|ाई|ाए)$|^(?:रखा|रखी|रखे|चला|चले|चली|मिला|मिली|मिले|पड़ा|पड़ी|पड़े|बढ़ा|बढ़ी|बढ़े|घटा|"
    r"घटी|कहा|आया|आई|आए|बना|बनी|बने|की)$"
)
_FA_VERB = _of(
    "است نیست هست هستند نیستند بود نبود بودند شد شدند شود شوند نشد کرد کردند کند کنند نکرد دارد دارند ندارد "
    "ندارند داد دادند "
    "دهد دهند یافت یافتند یابد گرفت گرفتند گیرد رفت رسید آمد آورد زد خورد گذاشت داشت داشتند باشد باشند ساخت "
    "ماند کشید "
    "خواهد خواهند باید توان بخشد رسد گردد گشت گردید نمود پیوست پرداخت برد بردند شناخت افزود فرستاد نهاد دید "
    "دیدند گفت گفتند "
    "نوشت نوشتند آموخت دانست توانست توانستند خواست خواستند انجامید داراست آورده کرده شده بوده گذاشته یافته"
)
_FA_ENDING = re.compile(r"^ن?می\u200c?\w{2,}$|\u200c(?:است|اند)$")


def _japanese(text: str) -> bool:
    return bool(_JA_VERB.search(text)) and not re.search(r"(?:こと|もの|ため|について|とは)$", text)


def _korean(text: str) -> bool:
    return bool(_KO_VERB.search(text)) and not _KO_NOUN.search(text)


def _hindi(tokens: list[str]) -> bool:
    # A relative clause ("जो ... है") also has a verb. Only a text without any verb is certain.
    return any(token in _HI_VERB - {"लिए", "दी", "ली"} for token in tokens) or (
        bool(tokens) and (bool(_HI_ENDING.search(tokens[-1])) or tokens[-1] in _HI_VERB)
    )


def _persian(tokens: list[str]) -> bool:
    return any(_FA_ENDING.search(token) for token in tokens) or any(
        token in _FA_VERB or token.endswith(("دند", "تند")) for token in tokens[-2:]
    )


# -- languages in which a sentence needs no verb -----------------------------------------------------------------------

_RU_VERB = re.compile(
    r"(?:ает|яет|еет|ует|ит|ёт|нет|жет|дет|чет|шет|рет|ют|ут|ат|ят|ится|ется|ются|утся|ятся|лся|лась|лось|лись|"
    r"ал|ял|ил|ел|ыл|ул|"
    r"[аяеиыу]ла|[аяеиыу]ло|[аяеиыу]ли)$"
)
_RU_WORDS = _of("нет есть был была было были может могут должен должна должны нельзя надо это является не")
_RU_HEADS = re.compile(
    r"^(?:влияни|рол[ьи]|хранени|сравнени|прав[аио]|зависимост|причин|метод|способ|лечени|применени|использовани|"
    r"определени|истори|особенност|эффект|связ|значени|развити|исследовани|анализ|виды|тип|список|свойств|воздействи|"
    r"профилактик|правил|преимуществ|проблем|понимани|изучени|обзор|описани|\w{3,}(?:ание|ение|ация|ость)$)"
)
_AR_HEADS = _of(
    "تأثير تاثير دور تخزين مقارنة حقوق طرق طريقة أسباب علاج استخدام العلاقة علاقة أهمية كيفية أعراض تعريف تاريخ "
    "أنواع قائمة خصائص "
    "فوائد أضرار تحليل دراسة مفهوم فهم شرح آثار أثر مخاطر تطور الفرق وسائل قواعد نظرة وصف"
)
_AR_VERB = re.compile(r"^و?(?:ي\w{2,}|ت\w{3,}|أ\w{2,}ت|لا|لم|لن|ليس|ليست|قد|كان|كانت|يكون|إن|أن|أدى|أدت|هو|هي|هم)$")
_ID_HEADS = re.compile(
    r"^(?:pengaruh|efek|cara|manfaat|peran|penyebab|perbandingan|hubungan|penggunaan|jenis|gejala|definisi|"
    r"sejarah|daftar|"
    r"perbedaan|dampak|hak|sifat|metode|teknik|proses|tips|panduan|fungsi|risiko|faktor|pe[mnry]\w+an|kegunaan|"
    r"memahami)$"
)
_ID_VERB = re.compile(
    r"^(?!mentega|merek|merah|meriam|mental|mentah|meja|mesin|melati|melon)(?:me(?:m|n|ng|ny|l|r|w|y)\w{3,}|"
    r"di(?!ngin|mana|antara|rinya|alog|abetes)\w{4,}|ber\w{3,}|adalah|ialah|merupakan|bisa|dapat|tidak|bukan|"
    r"lebih|akan|telah|sudah|"
    r"ada|punya|boleh|harus|perlu|mampu|menjadi)$"
)
_BN_HEAD = re.compile(
    r"(?:প্রভাব|ভূমিকা|উপায়|উপায়|তুলনা|অধিকার|নিয়ম|নিয়ম|পদ্ধতি|ব্যবহার|কারণ|চিকিৎসা|ইতিহাস|লক্ষণ|সম্পর্কে|সম্পর্ক|গুরুত্ব|"
    r"সংজ্ঞা|বিশ্লেষণ|বৈশিষ্ট্য|সংরক্ষণ|উপকারিতা|"
    r"তালিকা|প্রক্রিয়া|প্রকার|ধরন|পার্থক্য)$"
)
_BN_VERB = re.compile(r"(?:য়|য়|ছে|ছেন|ছিল|ছিলেন|বে|বেন|লাম|লেন|নেই|না|ে)$")
_ZH_HEAD = re.compile(
    r"(?:的|与|和|下的|及其)[^的，。]{0,8}?(?:影响|作用|方法|方式|关系|研究|分析|比较|应用|原因|效果|治疗|特点|"
    r"区别|权利|储存|历史|定义|概述|技巧|步骤|类型|指南|"
    r"意义|功能|原理|差异|趋势|管理|措施|策略)$|(?:指南|概述|简介|方法)$"
)
_ZH_KEYWORDS = re.compile(r"[\w.]{1,6}(?: [\w.]{1,6})+")
_ZH_VERB = re.compile(
    r"[是没不未已被让将]|会(?!议)|能(?![力量源])|可(?!能性)|使(?!用)|了(?!解)|比(?!较)|为(?!何|什)|导致|引起|"
    r"必须|应该|需要|给予|具有|含有|属于|造成|产生"
)


def _russian(tokens: list[str], text: str) -> bool | None:
    if "—" in text or " - " in text:
        return True
    if any(token in _RU_WORDS or (at and _RU_VERB.search(token)) for at, token in enumerate(tokens)):
        return True
    return False if tokens and _RU_HEADS.match(tokens[0]) else None


def _arabic(tokens: list[str], _: str) -> bool | None:
    """Return whether the text is a statement.

    A heading begins with its head, a noun in `_AR_HEADS`, after which only a relative clause has a verb.
    """
    if tokens and tokens[0] in _AR_HEADS:
        relative = ("التي", "الذي", "الذين")
        own = [token for at, token in enumerate(tokens[1:], 1) if tokens[at - 1] not in relative]
        return None if any(_AR_VERB.match(token) for token in own) else False
    return True if any(_AR_VERB.match(token) for token in tokens) else None


def _indonesian(tokens: list[str], _: str) -> bool | None:
    own = [token for at, token in enumerate(tokens) if not at or tokens[at - 1] not in ("yang", "untuk", "cara")]
    heading = bool(tokens) and bool(_ID_HEADS.match(tokens[0]))
    if any(_ID_VERB.match(token) for token in own[1 if heading else 0 :]):
        return True
    return False if heading else None


def _bengali(tokens: list[str], text: str) -> bool | None:
    if _BN_HEAD.search(text):
        return False
    return True if _BN_VERB.search(text) else None


def _chinese(tokens: list[str], text: str) -> bool | None:
    if _ZH_VERB.search(text):
        return True
    return False if _ZH_HEAD.search(text) or _ZH_KEYWORDS.fullmatch(text) else None


_BY_TOKENS: dict[str, Callable[[list[str]], bool]] = {
    "en": _english, "de": _german, "fr": _french, "es": _spanish, "hi": _hindi, "fa": _persian,
}  # fmt: skip
_BY_TEXT: dict[str, Callable[[str], bool]] = {"ja": _japanese, "ko": _korean}
_OR_NONE: dict[str, Callable[[list[str], str], bool | None]] = {
    "ru": _russian, "ar": _arabic, "id": _indonesian, "bn": _bengali, "zh": _chinese,
}  # fmt: skip


def states(text: str, language: str) -> bool | None:
    """Return whether a text has a predicate, or None if this is unclear or the language has no rules.

    Args:
        text: A sentence, heading or list of keywords.
        language: ISO 639-1 code.
    """
    text = text.strip(_PUNCTUATION + "'’！）").replace("’", "'")
    said = (word.strip(_PUNCTUATION) for word in (text if language == "de" else text.casefold()).split())
    tokens = [word for word in said if word]
    if language in _BY_TOKENS:
        return _BY_TOKENS[language](tokens)
    if language in _BY_TEXT:
        return _BY_TEXT[language](text)
    return _OR_NONE[language](tokens, text) if language in _OR_NONE else None
