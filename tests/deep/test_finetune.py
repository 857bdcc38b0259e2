"""The folder of unfinished fine-tuning: files that rpml did not write stay as they are."""

import os

import pytest

pytest.importorskip("torch")
from rpml.deep.finetune import ResumableFinetuning
from rpml.runtime.errors import InputError


def a_file(work):
    work.write_text("mine")


def another_file(work):
    work.mkdir()
    (work / "thesis.txt").write_text("mine")


def epochs_of_another_program(work):
    work.mkdir()
    (work / "epoch.safetensors").write_text("mine")


def activations_of_another_program(work):
    work.mkdir()
    (work / "activations.npy").write_text("mine")


def a_link_to_a_folder(work):
    work.with_name("elsewhere").mkdir()
    (work.with_name("elsewhere") / "thesis.txt").write_text("mine")
    work.symlink_to("elsewhere")


def a_link_to_nothing(work):
    work.symlink_to("nowhere")


PLANTED = [
    a_file,
    another_file,
    epochs_of_another_program,
    activations_of_another_program,
    a_link_to_a_folder,
    a_link_to_nothing,
]


def snapshot(folder):
    return {p: os.readlink(p) if p.is_symlink() else p.is_file() and p.read_bytes()
            for p in folder.rglob("*")}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED)
@pytest.mark.parametrize("resume", [False, True])
def test_unknown_files_are_refused_and_stay(tmp_path, plant, resume):
    run = ResumableFinetuning(tmp_path / "a.onnx", resume, overwrite=True)
    plant(run.directory)
    before = snapshot(tmp_path)
    with pytest.raises(InputError, match=r"a\.onnx\.work"):
        run.check()
    run.discard()  # as a run does that found nothing wrong
    assert snapshot(tmp_path) == before
