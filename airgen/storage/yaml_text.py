"""Read untrusted YAML: with limits on size, depth and aliases, no tags that create objects, and finite numbers only."""

import math
from collections.abc import Iterable
from typing import Any

import yaml

from airgen.errors import SettingsError

_MAX_CHARACTERS = 4_000_000  # characters
_MAX_NODES = 200_000  # maximum values, counting each alias in full
_FLOAT = "tag:yaml.org,2002:float"


def read_yaml(text: str, name: str = "<text>") -> tuple[Any, yaml.Node | None]:
    """Return the value of a YAML text, and its nodes, which have line numbers. Raises SettingsError.

    Texts that are very long, deeply nested or expand without limit through aliases are refused, and so are NaN and
    infinity.
    """
    if len(text) > _MAX_CHARACTERS:
        raise SettingsError([f"{name}: has more than {_MAX_CHARACTERS:,} characters, which is too long for settings"])
    loader = yaml.SafeLoader("")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None, None
        sizes: dict[yaml.Node, int] = {}
        if _size(node, sizes) > _MAX_NODES:
            raise SettingsError([f"{name}: its aliases expand to more than {_MAX_NODES:,} values; use fewer of them"])
        nodes = sorted(sizes, key=lambda part: part.start_mark.index)  # in the order of the text
        if not_finite := _not_finite(nodes):
            raise SettingsError(
                [f"{name}:{item.start_mark.line + 1}: {item.value} is not a finite number" for item in not_finite]
            )
        if twice := _twice(nodes):
            raise SettingsError(
                [
                    f"{name}:{item.start_mark.line + 1}: the key {item.value!r} is given twice: keep one"
                    for item in twice
                ]
            )
        return loader.construct_document(node), node
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise SettingsError([f"{name}{line}: not YAML: {error.problem}"]) from error
    except yaml.YAMLError as error:
        raise SettingsError([f"{name}: not YAML: {' '.join(str(error).split())}"]) from error
    except RecursionError:
        raise SettingsError([f"{name}: is nested too deeply for settings"]) from None
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        # PyYAML's own errors for dates such as 2026-13-01 and for numbers such as !!int "".
        raise SettingsError([f"{name}: not YAML: {str(error) or type(error).__name__}"]) from error
    finally:
        loader.dispose()


def _size(node: yaml.Node, sizes: dict[yaml.Node, int]) -> int:
    """Count the values in a node, expanding each alias. A node that contains itself is too large."""
    if node not in sizes:
        sizes[node] = _MAX_NODES + 1 if isinstance(node, yaml.CollectionNode) else 1  # while it is not finished
        children: list[Any] = []
        if isinstance(node, yaml.MappingNode):
            children = [child for pair in node.value for child in pair]
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        sizes[node] = 1 + sum(_size(child, sizes) for child in children)
    return sizes[node]


def _not_finite(nodes: Iterable[yaml.Node]) -> list[yaml.ScalarNode]:
    """Return the numbers that are NaN, infinite or too large for a float."""
    numbers = (node for node in nodes if isinstance(node, yaml.ScalarNode) and node.tag == _FLOAT)
    return [node for node in numbers if not math.isfinite(yaml.SafeLoader("").construct_yaml_float(node))]


def _twice(nodes: Iterable[yaml.Node]) -> list[yaml.ScalarNode]:
    """Return the repeated keys of mappings; PyYAML would silently use the last one."""
    repeated = []
    for mapping in nodes:
        names = set()
        for key, _ in mapping.value if isinstance(mapping, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in names:
                    repeated.append(key)
                names.add((key.tag, key.value))
    return sorted(repeated, key=lambda key: key.start_mark.index)
