"""The usual names of columns, by role and language: the only list of them.

    names("query id", "query")      # ("queryid", "qid", ..., "query", ...): folded, most usual first
    is_named("Query-ID", "query id")

A name that a tool or a person uses is added here, in one line, and is then understood in files, rows and data frames.
Names are compared without case, spaces and separators. A column is also recognised by a word in its name, such as
`Relevance (0-3)`, unless another column has the whole name.
"""

from functools import cache, lru_cache

_WORDS: dict[str, dict[str, str]] = {
    "id": {
        "en": "_id id",
    },
    "number": {
        "en": "num number key",
    },
    "ticket": {
        "en": "uuid nr no ticket url",
    },
    "page": {
        "en": "url page uri link href permalink address source_url page_url",
        "de": "seite adresse",
        "fr": "lien adresse",
        "es": "página enlace",
        "ru": "ссылка страница",
        "zh": "网址 链接",
        "ja": "ページ リンク",
    },
    "query": {
        "en": "query query_text query_string question",
        "de": "frage suchanfrage anfrage suchbegriff",
        "fr": "requête requete",
        "es": "consulta pregunta",
        "it": "domanda",
        "ru": "запрос вопрос",
        "zh": "查询 查詢 问题",
        "ja": "検索語 クエリ 質問",
        "ko": "검색어",
    },
    "search": {
        "en": "user_input user_query search_term search_query search_phrase search q keywords keyword utterance input "
        "prompt",
    },
    "any text": {
        "en": "topic title text value",
    },
    "query id": {
        "en": "query_id qid q_id topic_id",
    },
    "topic": {
        "en": "topic",
    },
    "key": {
        "en": "key",
    },
    "inner key": {
        "en": "inner_key",
    },
    "value": {
        "en": "value",
    },
    "count": {
        "en": "count frequency freq searches times n total volume impressions hits",
        "de": "anzahl häufigkeit",
        "fr": "nombre",
        "es": "cantidad",
        "ru": "количество",
        "zh": "次数",
        "ja": "回数",
        "ko": "횟수",
    },
    "document id": {
        "en": "corpus_id docno doc_id pid passage_id document_id did chunk_id node_id ref_doc_id",
    },
    "document": {
        "en": "doc document passage",
        "de": "dokument",
        "es": "documento",
        "ru": "документ",
        "zh": "文档",
        "ja": "文書",
        "ko": "문서",
    },
    "rating": {
        "en": "rating judgment judgement score grade relevance label rel gain relevancy qrel relevant is_relevant "
        "relevance_score relevance_label stars star_rating correct correctness verdict annotation responses choice",
        "de": "bewertung relevanz urteil",
        "fr": "pertinence pertinent jugement",
        "es": "relevancia relevante calificación puntuación",
        "it": "rilevanza giudizio",
        "ru": "оценка релевантность",
        "zh": "相关性 评分",
        "ja": "評価 関連度 関連性",
        "ko": "평가 관련성",
    },
    "rater": {
        "en": "rater annotator assessor judge user user_id worker worker_id completed_by reviewer",
    },
    "score": {
        "en": "score scores sim similarity rsv relevance_score",
    },
    "rank": {
        "en": "rank",
    },
    "title": {
        "en": "title name subject headline heading summary question",
        "de": "titel betreff",
        "fr": "titre",
    },
    "text": {
        "en": "text body content contents description passage article abstract answer markdown html context "
        "page_content document documents",
    },
    "asked": {
        "en": "query question prompt input user_input user_query search_query search_term instruction",
    },
    "answer": {
        "en": "answer response reply",
        "de": "antwort antworten",
        "fr": "réponse reponse",
        "es": "respuesta",
        "it": "risposta",
        "ru": "ответ",
    },
    "output": {
        "en": "output response answer completion reply generation prediction",
    },
    "question": {
        "en": "question",
        "de": "frage",
        "es": "pregunta",
        "it": "domanda",
        "ru": "вопрос",
        "zh": "问题",
        "ja": "質問",
    },
    "system": {
        "en": "system model model_name name retriever run key",
    },
    "dataset": {
        "en": "inner_key dataset task task_name benchmark collection corpus",
    },
    "mean": {
        "en": "score value main_score ndcg_10 ndcg_at_10 ndcg_cut_10 mean",
    },
    "anchor": {
        "en": "query question anchor q sentence1 sent0 text1 title prompt input",
    },
    "positive": {
        "en": "positives positive pos positive_passages positive_ctxs passage passages answer answers document "
        "sentence2 sent1 text2 body response text p",
    },
    "negative": {
        "en": "negatives negative neg negative_passages hard_negative_ctxs hard_negatives hard_negative hard_neg "
        "sentence3",
    },
}

_YES: dict[str, str] = {
    "en": "true yes y t relevant correct right ok pass positive accept accepted good_match match",
    "de": "wahr ja richtig",
    "fr": "vrai oui pertinent",
    "es": "verdadero sí si relevante",
    "it": "vero sì rilevante",
    "ru": "да истина релевантно",
    "zh": "是 相关",
    "ja": "はい 関連",
    "ko": "예 관련",
}
_NO: dict[str, str] = {
    "en": "false no n f not_relevant irrelevant nonrelevant non_relevant unrelated incorrect wrong fail negative "
    "reject rejected mismatch no_match",
    "de": "falsch nein nicht_relevant irrelevant",
    "fr": "faux non non_pertinent",
    "es": "falso no no_relevante irrelevante",
    "it": "falso no non_rilevante",
    "ru": "нет ложь нерелевантно",
    "zh": "否 不相关",
    "ja": "いいえ 無関係",
    "ko": "아니오 무관",
}
_DEGREES: dict[str, str] = {
    "en": "good bad perfect excellent fair poor partial partially partially_relevant somewhat somewhat_relevant "
    "highly_relevant very_relevant marginal exact substitute complement high medium low helpful unhelpful useful "
    "useless unsure",
    "de": "gut schlecht teilweise teilweise_relevant",
}


def folded(name: str) -> str:
    """Fold a column's name for comparison: lower case, without spaces and separators."""
    return "".join(character for character in name.casefold() if character.isalnum()) or name


@cache
def names(*roles: str) -> tuple[str, ...]:
    """Return the usual names of these roles, folded, the most usual ones first."""
    words = (word for role in roles for line in _WORDS[role].values() for word in line.split())
    return tuple(dict.fromkeys(map(folded, words)))


@lru_cache(4096)
def is_named(name: str, *roles: str) -> bool:
    """Return whether a column's whole name is a usual one of these roles."""
    return folded(name) in names(*roles)


@lru_cache(1024)
def column_named(columns: tuple[str, ...], *roles: str) -> str:
    """Return the column whose whole name is the most usual one of these roles; "" if there is none."""
    by_name = {folded(name): name for name in reversed(columns)}
    return next((by_name[name] for name in names(*roles) if name in by_name), "")


@cache
def _answers() -> dict[str, float]:
    words = {folded(word): 0.0 for line in _NO.values() for word in line.split()}
    return words | {folded(word): 1.0 for line in _YES.values() for word in line.split()}


def yes_or_no(text: str) -> float | None:
    """Return 1 for a word that means relevant, such as `yes` or `TRUE`, 0 for its opposite, and None for another."""
    return _answers().get(folded(text.strip()))


@cache
def _degrees() -> frozenset[str]:
    return frozenset(folded(word) for line in _DEGREES.values() for word in line.split())


def is_degree(text: str) -> bool:
    """Return whether a word is a degree of relevance, such as `partially relevant`, which is no number."""
    return folded(text) in _degrees()
