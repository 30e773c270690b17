"""Every public name is there, says what it is, and is listed once."""

import importlib
import inspect
import pkgutil

import pytest

import elmo_fast
import elmo_fast.ops
from elmo_fast import Elmo, ElmoEmbedder
from elmo_fast.errors import MissingExtraError
from elmo_fast.modules import BiLM

PUBLIC = [name for name in elmo_fast.__all__ if not name.startswith("__")]


def test_public_names_import_and_have_a_docstring():
    """Public names of the package and of ops, and public methods; constants (in capitals) need none."""
    for name in PUBLIC:
        thing = getattr(elmo_fast, name)
        assert thing.__module__.startswith("elmo_fast.")
        methods = [each for key, each in vars(thing).items() if inspect.isfunction(each) and not key.startswith("_")]
        for each in (thing, *(methods if inspect.isclass(thing) else ())):
            documented(each)
    for name in elmo_fast.ops.__all__:
        if not name.isupper():
            documented(getattr(elmo_fast.ops, name))


@pytest.mark.parametrize(
    ("package", "count"), [("ops", 4), ("tokens", 2), ("tasks", 1), ("static", 1), ("pictures", 2)]
)
def test_help_describes_the_fields_of_results(package, count):
    """Not as "Alias for field number 0"; the count shows that the test finds the package's tuples."""
    module = importlib.import_module(f"elmo_fast.{package}")
    kinds = [kind for name in module.__all__ if hasattr(kind := getattr(module, name), "_fields")]
    assert len(kinds) == count
    for kind in kinds:
        for field in kind._fields:
            assert "Alias for" not in getattr(kind, field).__doc__, f"{kind.__name__}.{field}"


MODULES = [
    module.name
    for module in pkgutil.walk_packages(elmo_fast.__path__, "elmo_fast.")
    if module.name not in ("elmo_fast._C", "elmo_fast.__main__")
]


def test_every_module_imports_and_has_a_docstring():
    """Each file of the package opens with one sentence on what is in it; a library of an integration may be absent."""
    for name in MODULES:
        try:
            documented(importlib.import_module(name))
        except MissingExtraError:
            assert name.startswith("elmo_fast.integrations.")


@pytest.mark.parametrize("package", ["", ".corpus", ".embed", ".pictures", ".static", ".tasks"])
def test_no_lazy_name_is_that_of_a_module(package):
    """Importing the module would put it in the name's place."""
    module = importlib.import_module(f"elmo_fast{package}")
    assert not set(module.__all__) & {inner.name for inner in pkgutil.iter_modules(module.__path__)}


def test_the_ops_promise_what_users_call_and_no_more():
    """These names stay until 2.0.0 (docs/install.md); a new one is a promise."""
    functions = (
        "char_cnn full_softmax hierarchical_softmax highway negative_sampling projected_lstm sampled_softmax scalar_mix"
    )
    sampling = "AliasTable alias_sample alias_table expected_counts log_expected_counts log_uniform_sample"
    trees_and_rows = "HuffmanTree huffman_tree adagrad_ adagrad_rows_ gather_rows unique_rows"
    settings = "BACKENDS PRECISIONS Choice LSTMWeights PackedWeights explain op_names refresh_weights"
    assert sorted(elmo_fast.ops.__all__) == sorted(f"{functions} {sampling} {trees_and_rows} {settings}".split())


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(AttributeError, match=r"has no attribute 'Elmoo'; it has: .*Elmo, ElmoEmbedder"):
        _ = elmo_fast.Elmoo


def test_dir_lists_all():
    assert set(elmo_fast.__all__) == set(dir(elmo_fast))
    assert len(set(elmo_fast.__all__)) == len(elmo_fast.__all__)


def documented(thing):
    """Fails unless the docstring of its own (not an inherited one) starts with a sentence of some length."""
    text = thing.__doc__ or ""
    where = getattr(thing, "__qualname__", getattr(thing, "__name__", thing))
    assert len(text.strip()) > 15, f"{where} has no docstring to speak of: {text!r}"


SPELLED_OUT = {
    "ElmoEmbedder": (ElmoEmbedder, BiLM, {"requires_grad", "vocab_to_cache"}),
    "ElmoEmbedder.from_pretrained": (ElmoEmbedder.from_pretrained, ElmoEmbedder, {"options_file", "weight_file"}),
    "Elmo": (Elmo, BiLM, set()),
    "Elmo.from_pretrained": (Elmo.from_pretrained, Elmo, {"options_file", "weight_file", "module"}),
}


@pytest.mark.parametrize("name", SPELLED_OUT)
def test_arguments_are_spelled_out_with_the_defaults_of_where_they_go(name):
    """An editor completes them. None stands for what a model's folder says."""
    function, target, absent = SPELLED_OUT[name]
    own, expected = inspect.signature(function).parameters, inspect.signature(target).parameters
    assert not [each for each in own.values() if each.kind is each.VAR_KEYWORD]
    assert expected.keys() - own.keys() == absent
    for each in expected.keys() & own.keys() - {"options_file", "weight_file"}:
        if each == "stateful" and name.endswith("from_pretrained"):
            assert own[each].default is False
        else:
            assert own[each].default in (None, expected[each].default), each
