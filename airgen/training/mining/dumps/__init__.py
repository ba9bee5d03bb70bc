"""Readers of the sources of E5's CCPairs (section 3) as dumps on disk: `airgen train pairs reddit:RS_2019-01.zst ...`.

    reddit          a post, and a comment                            pushshift's RS_* and RC_* files
    stackexchange   a question, and an upvoted answer                Posts.xml of the archive dumps
    wikipedia       entity name and section title, and a passage     KILT's knowledge source
    papers          title and abstract; papers that cite each other  S2ORC, Semantic Scholar's datasets
    common-crawl    a page's title, and a passage; two passages      WARC, WET, cc_net's JSONL
    nli             a sentence, one that it entails, one against it  SimCSE's CSV
    news            an article's title, and a passage                JSONL

A reader is a class of one module and a line of `airgen.registry.REGISTRY["dump"]`; `dump_reader.py` has the protocol.
Files may be packed by gzip, bzip2 or zstd. They are read as streams: what must be joined waits in a file.
"""
