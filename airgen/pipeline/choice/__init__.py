"""Which of several drafts becomes a sample's query (`generation.candidates`), by what is known without a person.

choose = Chooser(store, pipeline, plan, folder, embeddings, display)
scores = await choose(lineage, ["what bends a wing", "wing load"])      # a Scored for each
"""

__all__: list[str] = []
