"""The plan of a job: every arrow from document to decision, in the paper's order.

    document  -> passage        CORPUS          read, clean and cut the documents
    passage   -> sample         draw_samples    draw passages in waves, until enough queries are accepted (2.3, step 1)
    sample    -> character      CHARACTER       a person who may need the passage (step 2)
    character -> scenario       SCENARIO        when and why (step 3)
    scenario  -> query          query           what that person asks (step 4)
    query     -> rewrite        rewrite         the same in other words and styles (step 5)
    rewrite   -> judgment       own_judgment    does its own document answer it?
    rewrite   -> hard_negative  HARD_NEGATIVE   passages that seem to answer it (step 6), of accepted queries only
    rewrite   -> recall         RECALL          passages that an embedding model finds (2.4, step 1)
    recall    -> prelabel       prelabel_steps  the scores of each re-ranker (step 2)
    prelabel  -> judgment       JUDGMENT        an LLM judges what most re-rankers rank high (step 3)
    judgment  -> decision       DECISIONS       which queries and labels stay (Table 2)
    decision  -> hard_negative  MINED           passages that rank high and are not relevant, with negatives: mined

With `generation.method: needs`, a need comes between the scenario and its query. A user's own queries are read by
OWN_QUERIES in place of everything from the sample to the hard negatives. Stages of `generation.stages`, and reference
answers, follow the stage that they name.
"""

from airgen.control.quality_control import control_steps
from airgen.generation.flow import Flow
from airgen.job.store_corpus import CORPUS
from airgen.job.user_queries import OWN_QUERIES
from airgen.settings import Pipeline
from airgen.steps.step import Step, WholeStep


def steps_of(pipeline: Pipeline, flow: Flow) -> tuple[Step | WholeStep, ...]:
    """Return all steps of a pipeline in the order in which a query goes through them. `flow` are those of 2.3."""
    query_steps = flow.every if pipeline.generates else (OWN_QUERIES,)
    return (CORPUS, *query_steps, *control_steps(pipeline))
