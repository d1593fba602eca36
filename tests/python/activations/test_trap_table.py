"""Where hooks for saved tensors go wrong, and the tests of each way, by file and name."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
TRAPS: dict[str, list[str]] = {
    "1 parameters are saved, too, as views and as autocast's copies": [
        "test_traps.py::test_parameters_are_never_packed",
        "test_products.py::test_not_where_the_weight_itself_was_read",
    ],
    "2 a tensor that is alive elsewhere: packing it adds memory": [
        "test_traps.py::test_a_tensor_that_is_alive_elsewhere_is_kept",
        "test_hooks.py::test_what_is_stored_is_freed_while_the_pass_runs",
    ],
    "3 autograd does not check versions where there are hooks": [
        "test_traps.py::test_in_place_changes_raise_the_error_of_autograd",
        "test_traps.py::test_in_place_changes_after_forward_are_seen",
        "test_hooks.py::test_a_change_in_place_raises_with_the_words_of_autograd",
    ],
    "4 a saved output that is returned as it is holds its own node": [
        "test_graphs.py::test_no_cycle_holds_a_graph_that_never_runs",
        "test_hooks.py::test_no_cycle_holds_a_graph_that_never_runs",
    ],
    "5 only the innermost hooks are called: checkpoint is one, too": [
        "test_graphs.py::test_checkpoint",
        "test_graphs.py::test_grad_scaler_and_hooks_of_others",
    ],
    "6 hooks are not told which operator saves, nor as what": [
        "test_traps.py::test_operators_and_roles_are_known",
    ],
    "7 views and slices of one storage": [
        "test_traps.py::test_views_share_one_storage",
        "test_lossy.py::test_views_of_a_part_and_tensors_that_somebody_holds_are_kept",
    ],
    "8 an address is used again after a tensor is freed": [
        "test_traps.py::test_an_address_that_is_used_again_is_another_tensor",
    ],
    "9 an identity of Python is used again, and one tensor has several": [
        "test_traps.py::test_an_object_of_python_that_is_made_anew_is_another_tensor",
        "test_traps.py::test_two_objects_of_python_may_be_one_tensor",
    ],
    "10 expanded tensors: their elements are few": [
        "test_traps.py::test_expanded_and_strided_tensors",
    ],
    "11 strides and memory formats must come back": [
        "test_traps.py::test_strides_come_back",
        "test_exact.py::test_channels_last",
    ],
    "12 a copy is made to have a tensor contiguous": [
        "test_traps.py::test_no_tensor_is_copied_to_be_packed",
    ],
    "13 integers, masks and random state allow no error": [
        "test_traps.py::test_random_state_and_small_tensors_are_kept",
        "test_lossy.py::test_statistics_whole_numbers_and_factors_of_many_stay",
    ],
    "14 statistics are small, and their errors grow": [
        "test_traps.py::test_random_state_and_small_tensors_are_kept",
        "test_lossy.py::test_statistics_whole_numbers_and_factors_of_many_stay",
    ],
    "15 softmax and losses multiply errors": [
        "test_traps.py::test_softmax_is_kept",
        "test_lossy.py::test_scores_of_attention_get_eight_bits",
    ],
    "16 what is saved is unpacked several times": [
        "test_graphs.py::test_retain_graph",
        "test_hooks.py::test_graphs_are_read_twice_and_in_any_order",
        "test_lossy.py::test_backward_twice_and_changes_in_place",
    ],
    "17 and in no order": [
        "test_graphs.py::test_order_of_backward_does_not_matter",
        "test_hooks.py::test_graphs_are_read_twice_and_in_any_order",
    ],
    "18 second derivatives": [
        "test_graphs.py::test_double_backward",
        "test_graphs.py::test_gradgradcheck",
        "test_hooks.py::test_second_derivatives",
    ],
    "19 subclasses of Tensor": ["test_traps.py::test_subclasses_pass_untouched"],
    "20 sharded weights are freed after forward and gathered again": [
        "test_distributed.py::test_two_processes",
    ],
    "21 streams": [
        "test_traps.py::test_storages_of_several_streams_are_kept",
        "test_steady.py::test_streams",
    ],
    "22 hooks of Python do nothing in a compiled graph": [
        "test_compiled.py::test_gradients_keep_every_bit",
        "test_compiled_inductor.py::test_gradients_keep_every_bit",
        "test_steady.py::test_compiling_a_model_that_has_learnt",
    ],
    "23 errors, no_grad, accumulation, several graphs": [
        "test_graphs.py::test_an_error_in_forward_leaves_no_hooks",
        "test_graphs.py::test_an_error_in_backward_leaves_the_model_usable",
        "test_graphs.py::test_no_grad_eval_and_accumulation",
        "test_graphs.py::test_several_graphs_alive",
    ],
    "24 threads, and gradients inside of forward": [
        "test_graphs.py::test_threads",
        "test_graphs.py::test_backward_in_another_thread",
        "test_graphs.py::test_gradients_inside_of_forward",
        "test_hooks.py::test_threads_have_their_own_passes",
    ],
    "25 each call of a hook takes time": [
        "test_steady.py::test_as_much_is_stored_as_by_hooks_for_every_tensor",
        "test_steady.py::test_a_model_with_nothing_to_gain_has_no_hooks_left",
    ],
    "26 what is unpacked takes memory in backward": [
        "test_traps.py::test_what_is_unpacked_is_freed",
        "test_proof.py::test_storages_are_freed_as_backward_goes",
        "test_peak.py::test_the_peak_of_a_step_is_known_before",
    ],
}


@pytest.mark.parametrize("trap", TRAPS)
def test_each_has_a_test(trap: str) -> None:
    assert TRAPS[trap]
    for test in TRAPS[trap]:
        file, name = test.split("::")
        tree = ast.parse((FOLDER / file).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, test
