"""The usual names of columns, by role and language: the only list of them.

    names("query id", "query")      # ("queryid", "qid", ..., "query", ...): folded, most usual first
    is_named("Query-ID", "query id")

A name that a tool or a person uses is added here, in one line, and is then understood in files, rows and data frames.
Names are compared without case, spaces and separators. A column is also recognised by a word in its name, such as
`Relevance (0-3)`, unless another column has the whole name.
"""

from functools import cache, lru_cache

# role, language, names: a role may have several lines
_TABLE = """
id           en  _id id
number       en  num number key
ticket       en  uuid nr no ticket url
page         en  url page uri link href permalink address source_url page_url
page         de  seite adresse
page         fr  lien adresse
page         es  página enlace
page         ru  ссылка страница
page         zh  网址 链接
page         ja  ページ リンク
query        en  query query_text query_string question
query        de  frage suchanfrage anfrage suchbegriff
query        fr  requête requete
query        es  consulta pregunta
query        it  domanda
query        ru  запрос вопрос
query        zh  查询 查詢 问题
query        ja  検索語 クエリ 質問
query        ko  검색어
search       en  user_input user_query search_term search_query search_phrase search q keywords
search       en  keyword utterance input prompt
any-text     en  topic title text value
query-id     en  query_id qid q_id topic_id
topic        en  topic
key          en  key
inner-key    en  inner_key
value        en  value
count        en  count frequency freq searches times n total volume impressions hits
count        de  anzahl häufigkeit
count        fr  nombre
count        es  cantidad
count        ru  количество
count        zh  次数
count        ja  回数
count        ko  횟수
document-id  en  corpus_id docno doc_id pid passage_id document_id did chunk_id node_id ref_doc_id
document     en  doc document passage
document     de  dokument
document     es  documento
document     ru  документ
document     zh  文档
document     ja  文書
document     ko  문서
rating       en  rating judgment judgement score grade relevance label rel gain relevancy qrel
rating       en  relevant is_relevant relevance_score relevance_label stars star_rating correct
rating       en  correctness verdict annotation responses choice vote votes feedback thumbs
rating       de  bewertung relevanz urteil
rating       fr  pertinence pertinent jugement
rating       es  relevancia relevante calificación puntuación
rating       it  rilevanza giudizio
rating       ru  оценка релевантность
rating       zh  相关性 评分
rating       ja  評価 関連度 関連性
rating       ko  평가 관련성
rater        en  rater annotator assessor judge user user_id worker worker_id completed_by reviewer
score        en  score scores sim similarity rsv relevance_score
rank         en  rank
facet        en  category categories topic tag tags section product area department language lang
facet        en  locale date time created updated timestamp author owner type source version file
facet        en  keywords email iteration metadata
facet        de  kategorie thema datum sprache produkt
title        en  title name subject headline heading summary question
title        de  titel betreff
title        fr  titre
text         en  text body content contents description passage article abstract answer markdown
text         en  html context page_content document documents
asked        en  query question prompt input user_input user_query search_query search_term
asked        en  instruction
answer       en  answer response reply
answer       de  antwort antworten
answer       fr  réponse reponse
answer       es  respuesta
answer       it  risposta
answer       ru  ответ
output       en  output response answer completion reply generation prediction
question     en  question
question     de  frage
question     es  pregunta
question     it  domanda
question     ru  вопрос
question     zh  问题
question     ja  質問
system       en  system model model_name name retriever run key
dataset      en  inner_key dataset task task_name benchmark collection corpus
mean         en  score value main_score ndcg_10 ndcg_at_10 ndcg_cut_10 mean
anchor       en  query question anchor q sentence1 sent0 text1 title prompt input
positive     en  positives positive pos positive_passages positive_ctxs passage passages answer
positive     en  answers document sentence2 sent1 text2 body response text p
negative     en  negatives negative neg negative_passages hard_negative_ctxs hard_negatives
negative     en  hard_negative hard_neg sentence3
yes          en  true yes y t relevant correct right ok pass positive accept accepted good_match
yes          en  match
yes          de  wahr ja richtig
yes          fr  vrai oui pertinent
yes          es  verdadero sí si relevante
yes          it  vero sì rilevante
yes          ru  да истина релевантно
yes          zh  是 相关
yes          ja  はい 関連
yes          ko  예 관련
yes          en  👍 ✓ ✔
no           en  false no n f not_relevant irrelevant nonrelevant non_relevant unrelated incorrect
no           en  wrong fail negative reject rejected mismatch no_match
no           de  falsch nein nicht_relevant irrelevant
no           fr  faux non non_pertinent
no           es  falso no no_relevante irrelevante
no           it  falso no non_rilevante
no           ru  нет ложь нерелевантно
no           zh  否 不相关
no           ja  いいえ 無関係
no           ko  아니오 무관
no           en  👎 ✗ ✘
degree       en  good bad perfect excellent fair poor partial partially partially_relevant somewhat
degree       en  somewhat_relevant highly_relevant very_relevant marginal exact substitute
degree       en  complement high medium low helpful unhelpful useful useless unsure
degree       de  gut schlecht teilweise teilweise_relevant
"""


def folded(name: str) -> str:
    """Fold a column's name for comparison: lower case, without spaces and separators."""
    return "".join(character for character in name.casefold() if character.isalnum()) or name


@cache
def _words() -> dict[str, tuple[str, ...]]:
    """Return {role: its names as written}."""
    words: dict[str, list[str]] = {}
    for line in _TABLE.strip().splitlines():
        role, _, *named = line.split()
        words.setdefault(role.replace("-", " "), []).extend(named)
    return {role: tuple(named) for role, named in words.items()}


@cache
def names(*roles: str) -> tuple[str, ...]:
    """Return the usual names of these roles, folded, the most usual ones first."""
    return tuple(dict.fromkeys(folded(word) for role in roles for word in _words()[role]))


@lru_cache(4096)
def is_named(name: str, *roles: str) -> bool:
    """Return whether a column's whole name is a usual one of these roles."""
    return folded(name) in names(*roles)


@lru_cache(1024)
def column_named(columns: tuple[str, ...], *roles: str) -> str:
    """Return the column whose whole name is the most usual one of these roles; "" if there is none."""
    by_name = {folded(name): name for name in reversed(columns)}
    return next((by_name[name] for name in names(*roles) if name in by_name), "")


def yes_or_no(text: str) -> float | None:
    """Return 1 for a word that means relevant, such as `yes` or `TRUE`, 0 for its opposite, and None for another."""
    word = folded(text.strip())
    return 1.0 if word in names("yes") else 0.0 if word in names("no") else None


def is_degree(text: str) -> bool:
    """Return whether a word is a degree of relevance, such as `partially relevant`, which is no number."""
    return folded(text) in names("degree")
