"""Embedders from sentence-transformers, by Hub name, folder or catalogue name, and the base classes of torch models.

    {kind: sentence-transformers, model: BAAI/bge-m3, dtype: fp16, device: [cuda:0, cuda:1],
     model_kwargs: {attn_implementation: sdpa}}

A model is used as its authors publish it: the library loads its prompts, maximum length, pooling, similarity, number of
dimensions and dtype, unless the settings say otherwise. Prompts that only the model card gives come from
`airgen.retrievers.model_prompts`.

On a GPU, a batch has as many texts as fit in memory. If it runs out of memory nevertheless, the batch is halved and
work continues. Several devices share the work through the library's own process pool.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen import models
from airgen.components import devices
from airgen.components.devices import Devices, Dtype
from airgen.components.registry import load_extra
from airgen.compute import without_main
from airgen.errors import ModelError
from airgen.models.catalogue import weights_hash
from airgen.retrievers.component import Component
from airgen.retrievers.model_facts import ModelFacts, ModelSetup, shown_name
from airgen.retrievers.model_output import finite, unit_rows
from airgen.retrievers.model_prompts import known_prompts
from airgen.retrievers.protocols import TextKind
from airgen.safety.guard import is_out_of_memory
from airgen.safety.mask_secrets import printable
from airgen.settings.base import MODEL, SPEED

T = TypeVar("T")

_CPU_BATCH = 32  # texts per batch; a larger batch costs a CPU more padding
_CPU_TOKENS = 32_768  # tokens per batch, which limits the memory of a model for long texts
_GPU_TEXTS = 4096  # texts given to a model on a GPU at once, sorted by length; a crash loses some seconds
_LARGEST_BATCH = 1024  # maximum texts per batch, however short they are


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hide transformers' progress bars, and its warnings about heads that a model does not need."""
    logging = load_extra("transformers", "a neural model").utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def loaded(role: str, name: str, make: Any, **settings: Any) -> Any:
    """Call `make(**settings)`, and convert its errors to a ModelError that says what to do.

    Out-of-memory errors are raised unchanged. If the model is not on this machine, a Hub that does not answer is given
    up within seconds.
    """
    places = [value for value in settings.values() if isinstance(value, str | Path)]
    if not any(Path(place).exists() for place in places) and not models.in_hub_cache(name):
        models.give_up_silent_hub()
    try:
        with quiet_transformers():
            return make(**settings)
    except (OSError, ValueError, KeyError, RuntimeError, AttributeError, TypeError) as error:
        if is_out_of_memory(error):
            raise
        reason = printable(str(error).strip().partition("\n")[0], 300) or type(error).__name__
        raise ModelError(
            f"{role} {name} cannot be loaded ({reason}): give a Hub name that can be reached, a folder, "
            "or a model of `airgen show models`"
        ) from error


def with_tokenizer(
    kind: str,
    role: str,
    name: str,
    place: str,
    *,
    device: str | None,
    dtype: Dtype = "auto",
    model_kwargs: Mapping[str, Any] | None = None,
) -> tuple[Any, Any]:
    """Load a transformers model and its tokenizer, on a GPU if there is one.

    Args:
        kind: A transformers class, such as "AutoModel".
        role: Role of the model for error messages.
        name: Name of the model for error messages.
        place: Folder or Hub name.
        device: torch device. Default: a GPU if there is one.
        dtype: Dtype of the weights.
        model_kwargs: Further arguments of `from_pretrained`.

    Raises:
        ModelError: The model cannot be loaded.
    """
    transformers = load_extra("transformers", f"{role} {name!r}")
    chosen = devices.check_device(device, f"{role} {name}")
    options = {**weights_of(dtype), **(model_kwargs or {})}
    model = loaded(
        role, name, getattr(transformers, kind).from_pretrained, pretrained_model_name_or_path=place, **options
    )
    tokenizer = loaded(role, name, transformers.AutoTokenizer.from_pretrained, pretrained_model_name_or_path=place)
    return model.to(chosen).eval(), tokenizer


def weights_of(dtype: Dtype) -> dict[str, Any]:
    """Return `dtype` as an argument for transformers, or {} for the dtype of the files."""
    return {} if dtype == "auto" else {"dtype": devices.torch_dtype(dtype)}


class TorchModel(Component):
    """A component that runs a torch model, which is loaded on first use and again after `release`."""

    class Settings(Component.Settings):
        """Settings of a torch model.

        Attributes:
            model: A Hub name, a folder, or a name in the catalogue.
            dtype: Type of the weights. `auto` is the type in the files; `bf16` is faster on a GPU.
        """

        rules = 1
        model: Annotated[str, MODEL]
        device: Annotated[Devices, SPEED] = None
        dtype: Dtype = "auto"

    settings: Settings
    travels = True
    parts: Any
    _held: ClassVar[tuple[str, ...]] = ("model", "parts")  # what `release` deletes
    _most: int | None = None  # texts per batch after memory was exhausted

    def set_up(self) -> None:
        self.name = self.settings.model

    @cached_property
    def model(self) -> Any:
        """Return the library's model, loaded on first use. A trainer sets its own model to search with it."""
        raise NotImplementedError

    @cached_property
    def _hash(self) -> str:
        return weights_hash(self.place(self.name))

    @property
    def facts(self) -> ModelFacts:
        return torch_facts(self.model)

    def setup(self) -> ModelSetup:
        """Return how the model is run. This default is for a subclass with `parts`, a model and its tokenizer."""
        return ModelSetup(self.name, max_length=self.most_tokens("passage"), dtype=self.facts.dtype or "")

    def most_tokens(self, kind: TextKind) -> int | None:
        """Return the maximum length in the settings, up to what the model supports."""
        most: int = self.settings.max_length  # type: ignore[attr-defined]
        return min(most, getattr(self.parts[0].config, "max_position_embeddings", None) or most)

    def token_counts(self, texts: Sequence[str], kind: TextKind) -> list[int] | None:
        """Return the numbers of tokens according to the model's own tokenizer."""
        return tokens_of(self.parts[1], texts)

    @property
    def gpu(self) -> bool:
        """Return whether the model runs on a GPU."""
        return devices.on_gpu(self.settings.device)

    @property
    def precision(self) -> dict[str, object]:
        """Return the dtype, unless it is that of the files, the arguments for the library and the adapter's weights."""
        settings: dict[str, object] = {} if self.settings.dtype == "auto" else {"dtype": self.settings.dtype}
        arguments = {name: getattr(self.settings, name, None) for name in ("model_kwargs", "tokenizer_kwargs")}
        settings |= {name: value for name, value in arguments.items() if value}
        if (adapter := getattr(self.settings, "adapter", None)) is not None:
            settings["adapter"] = weights_hash(self.place(adapter)) or adapter
        return settings

    def release(self) -> None:
        """Drop the model and free its memory. The next use loads it again."""
        held = [self.__dict__.pop(name) for name in self._held if name in self.__dict__]
        if held:
            del held
            devices.give_back()

    def in_batches(self, work: Callable[[int], T], size: int) -> T:
        """Return the result of `work` with a batch of `size`, which is halved whenever memory runs out.

        The batch size that fits is used for all later batches. Raises ModelError if even a batch of 1 does not fit.
        """
        size = size if self._most is None else min(size, self._most)
        last = size

        def attempt(size: int) -> T:
            nonlocal last
            last = size
            return work(size)

        try:
            result, used_size = devices.halving(attempt, size)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            where = devices.first_of(self.settings.device) or ("the GPU" if self.gpu else "this machine")
            raise ModelError(
                f"{self.name}: out of memory on {where} with a batch of {last}: lower max_length, set dtype: "
                f"bf16, or use a smaller model"
            ) from error
        if used_size < size:
            self._most = used_size
        return result


def torch_facts(model: Any) -> ModelFacts:
    """Return the parameters, device, threads and dtype of a model, or of the module inside a wrapper."""
    torch = load_extra("torch", "a neural model")
    module = next((part for part in (model, getattr(model, "model", None)) if isinstance(part, torch.nn.Module)), None)
    if module is None:
        return ModelFacts(device=None)
    weights = list(module.parameters())
    device = str(weights[0].device) if weights else "cpu"
    return ModelFacts(
        sum(weight.numel() for weight in weights) or None,
        device,
        torch.get_num_threads() if device == "cpu" else None,
        next((devices.dtype_name(weight.dtype) for weight in weights if weight.is_floating_point()), None),
    )


class LibraryModel(TorchModel):
    """Base class of sentence-transformers models."""

    class Settings(TorchModel.Settings):
        """Settings of a model that sentence-transformers or FlagEmbedding loads.

        Attributes:
            revision: A revision on the Hub.
            adapter: A LoRA adapter of peft for the model: a Hub name or a folder.
            model_kwargs: Arguments for `from_pretrained` of transformers.
            tokenizer_kwargs: Arguments for `from_pretrained` of its tokenizer.
        """

        packages: ClassVar[tuple[str, ...]] = ("sentence_transformers",)
        revision: str | None = None
        adapter: Annotated[str | None, MODEL] = None
        model_kwargs: dict[str, Any] = Field(default={})
        tokenizer_kwargs: dict[str, Any] = Field(default={})

    settings: Settings
    _texts = _GPU_TEXTS

    def set_up(self) -> None:
        super().set_up()
        self._pools: dict[int, tuple[Any, Any]] = {}  # of processes, by the id of their model: (stop, pool)

    def loaded(self, kind: str, role: str, name: str | None = None, **settings: Any) -> Any:
        """Load the model, or another one by name, as the library's class `kind`. Raises ModelError."""
        library = load_extra("sentence_transformers", f"{role} {self.name!r}")
        if not hasattr(library, kind):
            raise ModelError(f"this sentence-transformers has no {kind}: pip install -U sentence-transformers")
        own_model = name in (None, self.name)
        chosen = name or self.name
        device = devices.first_of(self.settings.device)
        if device is not None:
            device = devices.check_device(device, f"{role} {chosen}")
        model_kwargs = {**weights_of(self.settings.dtype), **self.settings.model_kwargs}
        options = {"device": device, "revision": self.settings.revision if own_model else None, **settings}
        if model_kwargs:
            options["model_kwargs"] = model_kwargs
        if own_model and self.settings.tokenizer_kwargs:
            options["processor_kwargs"] = self.settings.tokenizer_kwargs
        model = loaded(role, chosen, getattr(library, kind), model_name_or_path=self.place(chosen), **options)
        tokenizer: Any = getattr(model, "tokenizer", None)
        if getattr(tokenizer, "pad_token", "") is None:  # as Llama 2's; the attention mask leaves padding out
            tokenizer.pad_token = tokenizer.eos_token
        if own_model and (adapter := self.settings.adapter) is not None:
            load_extra("peft", f"the adapter {adapter!r}")
            loaded(
                f"the adapter of {role}", adapter, model[0].auto_model.load_adapter, peft_model_id=self.place(adapter)
            )
        if self.settings.dtype != "auto":  # modules without a transformer, such as a static table, take no argument
            model = model.to(devices.torch_dtype(self.settings.dtype))
        return model

    def setup(self) -> ModelSetup:
        """Return how the library runs the model."""
        model = self.model
        most, queries = self.most_tokens("passage"), self.most_tokens("query")
        query, passage = own_prompt(model, "query"), own_prompt(model, "passage")
        return ModelSetup(
            self.name,
            query,
            passage,
            prompts_from="the model" if query or passage else "",
            max_length=most,
            max_query_length=queries if queries != most else None,
            dtype=torch_facts(model).dtype or "",
            similarity=str(getattr(model, "similarity_fn_name", "")),
            revision=revision_of(self.place(self.name), self.settings.revision),
        )

    def most_tokens(self, kind: TextKind) -> int | None:
        """Return the model's maximum length, which a late-interaction model has for each kind."""
        first, own = self.model[0], getattr(self.model, "max_seq_length", None)
        expansion = getattr(first, "query_expansion", None) if kind == "query" else None
        side = getattr(first, f"{'query' if kind == 'query' else 'document'}_length", None)
        if expansion is not None:
            side = (
                expansion["length"] if expansion["strategy"] == "fixed" else max(side or own or 0, expansion["length"])
            )
        most = side or own
        return int(most) if most and most < _UNLIMITED else None

    def prompt(self, kind: TextKind) -> str:
        """Return what is put before texts of a kind."""
        return own_prompt(self.model, kind)

    def token_counts(self, texts: Sequence[str], kind: TextKind) -> list[int] | None:
        """Return the numbers of tokens according to the model's own tokenizer."""
        return tokens_of(getattr(self.model, "tokenizer", None), [self.prompt(kind) + text for text in texts])

    def side(self, kind: TextKind) -> Any:
        """Return the method that encodes texts of a kind, for models that treat queries and documents differently."""
        return self.model.encode_query if kind == "query" else self.model.encode_document

    @property
    def facts(self) -> ModelFacts:
        """Return the facts with all devices that share the work. In this process, their model is on the CPU."""
        named, facts = self.settings.device, super().facts
        several = isinstance(named, list) and len(named) > 1
        return replace(facts, device=" + ".join(dict.fromkeys(named or ()))) if several else facts

    @property
    def texts_at_once(self) -> int | None:
        """Return how many texts to encode at once: on GPUs, enough to fill batches sorted by length, and at least
        `batch_size`."""
        several = len(self.settings.device) if isinstance(self.settings.device, list) else 1
        batch = getattr(self.settings, "batch_size", None)
        if not self.gpu:
            return batch * several if batch is not None and batch * several > _CPU_BATCH else None
        return max(self._texts, batch or 0) * several

    def batch_for(self, texts: Sequence[str], model: Any = None) -> int:
        """Return the batch size for these texts: the setting, or as many as fit in memory."""
        batch_size: int | None = getattr(self.settings, "batch_size", None)
        if batch_size is not None:
            return batch_size
        model = self.model if model is None else model
        longest = max(map(len, texts), default=0)
        limit = getattr(model, "max_seq_length", None) or 512
        tokens = max(1, int(min(limit, longest + 8)))  # a token has at least one character
        if not self.gpu:
            return max(1, min(_CPU_BATCH, _CPU_TOKENS // tokens))
        return max(1, min(_LARGEST_BATCH, devices.tokens_that_fit(model, tokens) // tokens))

    def pool_of(self, model: Any) -> dict[str, Any]:
        """Return the library's arguments for sharing the work between devices, or {} for one device."""
        named = self.settings.device
        if not isinstance(named, list) or len(named) < 2:
            return {}
        if id(model) not in self._pools:
            for device in dict.fromkeys(named):
                devices.check_device(device, f"the model {self.name}")
            with without_main():
                pool = model.start_multi_process_pool(named)
            self._pools[id(model)] = weakref.finalize(self, model.stop_multi_process_pool, pool), pool
        return {"pool": self._pools[id(model)][1]}

    def release(self) -> None:
        """Release the model, and end the devices' processes."""
        for stop, _ in self._pools.values():
            stop()
        self._pools.clear()
        super().release()

    @property
    def local(self) -> dict[str, object]:
        """Return the hash of the files in a user's folder, because a changed folder is a different model."""
        return {"sha256": self._hash} if self._hash else {}


def as_array(tensor: Any) -> NDArray[np.float32]:
    """Convert the library's output, from any device and of any dtype, to fp32."""
    return np.asarray(tensor.float().cpu() if hasattr(tensor, "cpu") else tensor, np.float32)


class SentenceTransformersEmbedder(LibraryModel):
    """An embedding model from sentence-transformers, used as the library's `encode_query` and `encode_document` do."""

    class Settings(LibraryModel.Settings):
        """Settings of a sentence-transformers embedder. By default, each is the model's own.

        A prefix, such as an instruction, is put before every text. Default: the model's own prompts, or else those in
        its model card, if airgen knows them.

        Attributes:
            pooling: Overrides the model's own pooling.
            max_length: Maximum number of tokens, up to what the model supports.
            truncate_dim: Number of dimensions to keep, for a Matryoshka model.
            similarity: With `dot`, vectors keep their lengths.
            query_model: A separate encoder for queries, as in DPR.
            batch_size: Texts per batch. Default: up to 32 on a CPU, and as many as fit on a GPU.
        """

        query_prefix: str | None = None
        passage_prefix: str | None = None
        pooling: Literal["mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens"] | None = None
        max_length: int | None = Field(default=None, ge=1)
        truncate_dim: int | None = Field(default=None, ge=1)
        batch_size: Annotated[int | None, SPEED] = Field(default=None, ge=1)
        similarity: Literal["cosine", "dot"] | None = None
        query_model: Annotated[str | None, MODEL] = None

    settings: Settings
    _held = ("model", "_query_model")

    @cached_property
    def model(self) -> Any:
        return self._made(self.name)

    @cached_property
    def _query_model(self) -> Any:
        return self.model if self.settings.query_model is None else self._made(self.settings.query_model)

    def _made(self, name: str) -> Any:
        chosen = self.settings
        truncated = {} if chosen.truncate_dim is None else {"truncate_dim": chosen.truncate_dim}
        model = self.loaded("SentenceTransformer", "the model", name, **truncated)
        if chosen.max_length is not None:
            positions = getattr(model.config, "max_position_embeddings", None) or chosen.max_length
            model.max_seq_length = min(chosen.max_length, positions)
        if chosen.pooling is not None:
            for place, module in enumerate(model):
                if type(module).__name__ == "Pooling":
                    width = module.get_config_dict().get("embedding_dimension") or model[0].get_embedding_dimension()
                    model[place] = type(module)(
                        width, pooling_mode=chosen.pooling, include_prompt=module.include_prompt
                    )
        return model

    @property
    def _dot(self) -> bool:
        """Return whether vectors keep their lengths. Raises ModelError for a similarity other than these two."""
        own = self.settings.similarity or self.model.similarity_fn_name
        if own not in ("cosine", "dot"):
            reason = f"{self.name} was trained for the similarity {own!r}"
            raise ModelError(f"{reason}: set `similarity: dot` or `cosine` for the model")
        return bool(own == "dot")

    @cached_property
    def dim(self) -> int:
        size = self.model.get_embedding_dimension()
        return int(size) if size is not None else int(self.encode(["a"], "passage").shape[1])

    @property
    def facts(self) -> ModelFacts:
        """Return the facts of both encoders, if queries have their own."""
        return super().facts + (
            torch_facts(self._query_model) if self.settings.query_model else ModelFacts(device=None)
        )

    def _prefix(self, kind: TextKind) -> str | None:
        """Return the prefix that replaces the model's own prompt, or None for that prompt."""
        given = self.settings.query_prefix if kind == "query" else self.settings.passage_prefix
        if given is not None:
            return given
        model, name = self.model, self.name
        if kind == "query" and self.settings.query_model is not None:
            model, name = self._query_model, self.settings.query_model
        own = [own_prompt(model, side) for side in ("query", "passage")]
        return None if any(own) or (known := known_prompts(name)) is None else getattr(known, kind)

    def prompt(self, kind: TextKind) -> str:
        """Return what is put before texts of a kind."""
        prefix = self._prefix(kind)
        return own_prompt(self._query_model if kind == "query" else self.model, kind) if prefix is None else prefix

    def setup(self) -> ModelSetup:
        """Return how the library runs the model, with the prompts in use."""
        chosen = self.settings
        query, passage = self.prompt("query"), self.prompt("passage")
        by_hand = chosen.query_prefix is not None or chosen.passage_prefix is not None
        own = any(own_prompt(self.model, kind) for kind in _SIDES)
        origin = "the settings" if by_hand else "the model" if own else "its model card"
        unknown = not (query or passage or by_hand or own) and known_prompts(self.name) is None
        named = ", ".join(name for name in self.model.prompts if name not in ("query", "document"))
        hint = f"; the model has {named}, which query_prefix can set" if named else ""
        return replace(
            super().setup(),
            query_prompt=query,
            passage_prompt=passage,
            prompts_from=origin if query or passage else "",
            dim=self.dim,
            similarity="dot" if self._dot else "cosine",
            hint=f"no query prompt is known for {shown_name(self.name)}{hint}" if unknown else "",
        )

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Encode texts to unit vectors or, with similarity `dot`, to unnormalised vectors, float32 (n, dim)."""
        inputs, prefix = list(texts), self._prefix(kind)
        model = self._query_model if kind == "query" else self.model
        if not inputs:
            return np.zeros((0, self.dim), np.float32)
        side = model.encode_query if kind == "query" else model.encode_document
        options = {"convert_to_numpy": True, "normalize_embeddings": False, "show_progress_bar": False}
        options |= self.pool_of(model) | ({} if prefix is None else {"prompt": prefix})
        vectors = self.in_batches(lambda size: side(inputs, batch_size=size, **options), self.batch_for(inputs, model))
        vectors = finite(as_array(vectors).reshape(len(inputs), -1), self.name)
        return vectors if self._dot else unit_rows(vectors)

    def describe(self) -> Mapping[str, object]:
        names = ("model", "revision", "pooling", "max_length", "truncate_dim", "similarity")
        second = self.settings.query_model
        return {
            **self.described("sentence-transformers", *names, "query_prefix", "passage_prefix"),
            **(models.identity(self.name) or {"sha256": self._hash}),
            **self.precision,
            **({"query_model": second, "query_sha256": weights_hash(self.place(second))} if second else {}),
        }


_UNLIMITED = 1_000_000  # tokens; tokenizers without a limit name a huge number


def tokens_of(tokenizer: Any, texts: Sequence[str], special: bool = True) -> list[int] | None:
    """Return the number of tokens of each text by a tokenizer of transformers, or None for another one."""
    if not callable(tokenizer):
        return None
    with quiet_transformers():
        ids = tokenizer(list(texts), truncation=False, padding=False, add_special_tokens=special)["input_ids"]
    return [len(row) for row in ids]


def revision_of(name: str, revision: str | None = None) -> str:
    """Return the commit of a Hub model in the cache of the Hub's library, or "" for a folder."""
    if Path(name).exists() or not models.in_hub_cache(name):
        return ""
    find = load_extra("huggingface_hub", "a model of the Hub").try_to_load_from_cache
    place = find(name, "config.json", revision=revision) or find(name, "modules.json", revision=revision)
    return Path(place).parent.name if isinstance(place, str) else ""


_SIDES: dict[TextKind, tuple[str, ...]] = {"query": ("query",), "passage": ("document", "passage", "corpus")}


def own_prompt(model: Any, kind: TextKind) -> str:
    """Return the prompt that a model of sentence-transformers itself puts before texts of a kind, or ""."""
    prompts = getattr(model, "prompts", None) or {}
    name = next((name for name in _SIDES[kind] if name in prompts), getattr(model, "default_prompt_name", None))
    return str(prompts.get(name) or "")


def given_name(model: Any) -> str:
    """Return the name or folder from which a model of sentence-transformers was loaded, or its class's name."""
    name = getattr(getattr(model, "config", None), "_name_or_path", "")
    return str(name or type(model).__name__)
