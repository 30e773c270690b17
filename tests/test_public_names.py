"""Every public name is there, says what it is, and is listed once."""

import collections
import dataclasses
import importlib
import inspect
import pathlib
import pkgutil
import re
import textwrap

import pytest

import elmo_fast
import elmo_fast.ops
from elmo_fast import BiLM, Elmo, ElmoEmbedder
from elmo_fast.errors import MissingExtraError

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
def test_arguments_are_spelled_out(name):
    """An editor completes them; their defaults are in the table below."""
    function, target, absent = SPELLED_OUT[name]
    own, expected = inspect.signature(function).parameters, inspect.signature(target).parameters
    assert not [each for each in own.values() if each.kind is each.VAR_KEYWORD]
    assert expected.keys() - own.keys() == absent


def public_functions():
    """Yield names and functions: what docs/api.md lists, methods too, and the classes of both configurations."""
    from elmo_fast.pretrain import config

    modules = re.findall(r"automodule:: (elmo_fast(?!\.integrations)\S*)", pathlib.Path("docs/api.md").read_text())
    assert len(modules) > 8
    things = {
        name: getattr(module, name) for module in map(importlib.import_module, modules) for name in module.__all__
    }
    things |= {name: kind for name, kind in vars(config).items() if dataclasses.is_dataclass(kind)}
    for name, thing in things.items():
        if inspect.isroutine(thing) or (inspect.isclass(thing) and not issubclass(thing, Exception)):
            yield name, thing
            for key in vars(thing) if inspect.isclass(thing) else ():
                if not key.startswith("_") and callable(getattr(thing, key)):
                    yield f"{name}.{key}", getattr(thing, key)


def test_defaults_are_those_of_the_table():
    """An argument's default that most functions share, as NAME=VALUE; of others, FUNCTION.NAME=VALUE.

    A default is a promise: whoever changes one changes the table too, which this test prints.
    """
    defaults = collections.defaultdict(dict)
    for name, function in public_functions():
        for each in inspect.signature(function).parameters.values():
            if each.default is not each.empty:
                value = getattr(each.default, "__name__", repr(each.default)).replace(" ", "")
                defaults[each.name][name] = value
    table = []
    for argument, values in sorted(defaults.items()):
        counts = collections.Counter(values.values())
        usual = max(counts, key=lambda value: (counts[value], value))
        table += [f"{argument}={usual}"] * (usual != "None")  # None is the usual one of what is not in the table
        table += sorted(f"{f}.{argument}={v}" for f, v in values.items() if v != usual)
    assert table == DEFAULTS.split(), textwrap.fill(" ".join(table), 118, break_on_hyphens=False)


DEFAULTS = """
about='' activation='relu' add_contexts=True algorithm='sg' OptimizerConfig.all_clip_norm_val=10.0
allow_other_corpus=False alpha=0.75 arrows=False as_dict=False backend='auto' batch_first=False
ElmoEmbedder.embed_sentences.batch_size=64 OptimizerConfig.batch_size=128 TaskConfig.batch_size=32
context_free_vectors.batch_size=1024 occurrence_vectors.batch_size=64 write_word_vectors.batch_size=1024 bias=True
bidirectional=True LSTM.bidirectional=False load_vectors.cache=True cache_size=16384 case_insensitive=True
cell_clip=3.0 LstmOptions.cell_clip=None char_embedding_dim=16 characters=False LexiconOptions.characters=()
checkpoint_interval=1250 chunk_bytes=33554432 clustering='kmeans' clusters='auto' DataConfig.column='text'
copy_model=False correction='tensorflow' crf=False cuda_graph=True cuda_graphs=False data=<factory> dev_path=''
device='cpu' LSTM.device=None alias_sample.device=None log_uniform_sample.device=None dim=4096 CharCNN.dim=16
dimension=100 do_layer_norm=False dropout=0.5 BiLSTM.dropout=0.0 ElmoOptions.dropout=0.1 LSTM.dropout=0.0
ModelConfig.dropout=0.1 scalar_mix.dropout=0.0 dtype=torch.float32 LSTM.dtype=None ellipsis='' elmo='none'
elmo_dropout=0.5 elmo_learning_rate=0.0001 embedding_dim=30 CharCnnOptions.embedding_dim=16 epochs=5
TaskConfig.epochs=100 train_glove.epochs=25 eps=1e-12 error_if_nonfinite=False filters=<factory>
CharCNN.filters=((1,32),(2,32),(3,64),(4,128),(5,256),(6,512),(7,1024)) CharacterFeatures.filters=((3,30),)
final_share=0.0 fine_tune=False format='auto' evaluate_task.format=None predict_task.format=None from_hub=True
go_forward=True grad_clip=5.0 heldout_share=0.0 hidden=128 highways=2 index_name='elmo_tokens'
initial_accumulator_value=1.0 initialise=True input='characters' keep_best=False keep_checkpoints=2
keep_sentence_boundaries=False l2=0.001 labelled=True language='en' layer=0 ElmoFeatures.layer='mix'
SentenceIndex.search.layer=None TaskConfig.layer='mix' TextTokens.layer=-1 averaged_vectors.layer='top'
occurrence_vectors.layer='top' layer_norm=False nearest_tokens.layers='top' TaskConfig.learning_rate=0.001
train_glove.learning_rate=0.05 train_word2vec.learning_rate=0.025 log_interval=100
OptimizerConfig.loss='sampled_softmax' lstm_layers=1 marks=('[',']') match_case=False max_characters=50
max_characters_per_token=50 max_tokens=4096 nearest_tokens.max_tokens=None memory=1073741824 senses_of.method='pca'
TaskConfig.metric='auto' micro_batches=1 min_count=5 DataConfig.min_count=3 Vocabulary.build.min_count=1
averaged_vectors.min_count=1 mix_l2=0.001 mixes=1 PretrainConfig.model=<factory> most=2000 most_labels=300
n_characters=262 OptimizerConfig.n_epochs=10 n_highway=2 CharCnnOptions.n_highway=0 n_layers=2 LstmOptions.n_layers=1
OptimizerConfig.n_negative_samples_batch=8192 name='words' Vocabulary.check.name='vocabulary'
names=('vocab.txt','vocab.txt.gz') namespace='elmo_characters' norm_type=2.0 num_characters=262 num_layers=1
objective='ns' offset=0 one_hot=False optimiser='adagrad' optimizer=<factory> pairs=False TaskConfig.patience=5
pooling='both' power=1.0 NegativeSamplingLoss.power=0.75 precision='float32' probabilities=False
occurrence_vectors.progress=<lambda> ModelConfig.proj_clip=3.0 proj_size=0 project=True CharCNN.projection=512
projection_clip=3.0 ModelConfig.projection_dim=512 recurrent_dropout_probability=0.0 replaced=()
train_task.report=print requires_grad=False residual=False restrict_vocab=300000 resume=True RunConfig.resume='auto'
reverse=False ElmoLstm.run_layers.reverse=(False,True) projected_lstm.reverse=(False,True) run=<factory> sample=0.001
save_dir='' schedule='constant' second=() seed=0 scalar_mix.seed=None semantics='allennlp' shuffle=True
signature='default' source='thevocabulary' ElmoOptions.from_dict.source='options' Vectors.source=''
check_state.source='state' spans='auto' sparse=False split='train' state_reset=0.0 stateful=True
BiLM.forward.stateful=None ElmoLstm.forward.stateful=None _ElmoBiLm.forward.stateful=None statistics='allennlp'
symmetric=True task='tag' tensorboard=False title='' token_min_padding_length=0 topn=10 train_bilm=True train_path=''
train_prefix='' train_share=1.0 train_vectors=True TaskConfig.train_vectors=False trainable=False
ScalarMix.trainable=True unique_words=True unknown_as_wrong=False unknown_as_zero=False
OptimizerConfig.unroll_steps=20 use_character_inputs=True use_fast_sampler=False use_skip_connections=True
LstmOptions.use_skip_connections=False warmup_steps=0 weight_decay=0.0 window=5 train_glove.window=10 word_dim=100
LexiconOptions.word_dim=0 words=() workers=1 x_max=100.0
"""
