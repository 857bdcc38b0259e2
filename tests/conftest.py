"""Which tests wait for `make test-thorough`.

The default run answers in about five minutes on two cores. What is long, and would rarely fail
without a test of the default run failing too, is listed here or marked `thorough` where it stands;
`.ci/run` runs both.
"""

import pytest

THOROUGH = (
    # every page but the README
    "tests/test_docs.py::test_page[docs/",
    # variants of fits on a cluster
    "tests/distributed/test_estimator.py::test_other_settings",
    "tests/distributed/test_estimator.py::test_the_unit_of_the_rows_does_not_matter",
    "tests/distributed/test_faults.py",
    "tests/distributed/test_command.py::test_ctrl_c_ends_in_one_sentence",
    "tests/distributed/test_command.py::test_a_killed_scheduler_ends_in_one_sentence",
    # the other signals, faults and streams
    "tests/cli/test_interrupt.py::test_a_signal_keeps_the_best_model_and_resumes[15]",
    "tests/cli/test_interrupt.py::test_full_disk_while_fitting",
    "tests/cli/test_interrupt.py::test_kill_and_resume",
    "tests/faults/test_foreign_files.py::test_two_fits_of_one_output",
    "tests/faults/test_matrix.py::test_sample[embed",
    "tests/faults/test_mutations.py::test_sample",
    "tests/faults/test_two_processes.py",
    "tests/io/features/test_changes.py::test_maps_of_other_libraries_are_left_to_the_system",
    "tests/runtime/test_locks.py::test_everything_works_without_fcntl",
    "tests/faults/test_streams.py::test_a_full_standard_output_is_one_sentence[option0]",
    "tests/faults/test_streams.py::test_a_signal_removes_what_was_spooled[1]",
    "tests/faults/test_streams.py::test_a_signal_removes_what_was_spooled[2]",
    "tests/faults/test_streams.py::test_closed_streams",
    "tests/io/features/test_writing.py::test_vectors_and_their_ids_are_of_one_write_whatever_fails[E",
    "tests/runtime/test_compiled.py::test_without_a_folder_for_the_cache_one_line_says_so",
    "tests/vision/test_features_command.py::test_a_killed_run_continues_with_the_same_result",
    # whole runs whose parts have tests of their own
    "tests/cli/commands/test_benchmark.py::test_from_images_to_figures",
    "tests/cli/commands/test_benchmark.py::test_figures_of_any_image_set",
    "tests/cli/commands/test_benchmark.py::test_from_descriptors",
    "tests/pages/demo/test_drawings.py",
    "tests/pages/demo/test_code.py",
    "tests/pages/explorer/test_command.py::test_it_says_where_it_listens_and_stops_on_ctrl_c",
    "tests/pages/report/test_command.py::test_partial_labels_are_judged_on_the_labeled_rows[m",
    "tests/pages/report/test_command.py::test_partial_labels_are_judged_on_the_labeled_rows[o",
    "tests/pages/report/test_command.py::test_two_models_on_one_page",
    # the other window and colors of what is checked for accessibility
    "tests/pages/browser/test_explorer.py::test_accessible[390-dark]",
    "tests/pages/browser/test_gallery.py::test_accessible[390-dark]",
    "tests/pages/browser/test_report.py::test_accessible[390-dark]",
    "tests/pages/browser/test_two_models.py::test_accessible[390-dark]",
    "tests/io/test_manifest.py::test_a_folder_is_complete_or_noticed_whatever_fails[E",
    "tests/runtime/test_files.py::test_a_pair_is_old_or_new_or_refused_whatever_fails[E",
    "tests/pages/figures/test_tiles.py::test_framework_figure_tells_a_real_fit",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.startswith(THOROUGH):
            item.add_marker(pytest.mark.thorough)


@pytest.fixture
def caplog(caplog):
    """Hear warnings although a Dask cluster, open for the whole session, silences every handler."""
    caplog.handler.setLevel("NOTSET")
    return caplog
