#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TensorBoard's own reader on event files of the library. Runs itself in an environment that has the package.

usage: tensorboard_test.py TRACKED_RUN PYTHON
"""

import os
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77


def run(folder, *words):
    subprocess.run([sys.argv[1], folder, "tensorboard", *map(str, words)], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(folder, "run")


def accumulated(folder):
    from tensorboard.backend.event_processing import event_accumulator
    events = event_accumulator.EventAccumulator(folder, size_guidance={"scalars": 0, "histograms": 0, "images": 0,
                                                                      "tensors": 0})
    events.Reload()
    return events


class TensorboardTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="accel_tensorboard_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_every_kind_is_read(self):
        events = accumulated(run(self.folder, 0, 5, "all"))
        tags = events.Tags()
        self.assertEqual(set(tags["scalars"]), {"loss", "train/lr", "eval/accuracy", "flag", "tokens"})
        losses = events.Scalars("loss")
        self.assertEqual([event.step for event in losses], [0, 1, 2, 3, 4])
        for event in losses:
            self.assertAlmostEqual(event.value, 1 / (event.step + 1), places=6)
        self.assertEqual(events.Scalars("eval/accuracy")[0].value, 0.75)
        histogram = events.Histograms("weights")[0].histogram_value
        self.assertEqual(histogram.num, 1000)
        self.assertEqual(sum(histogram.bucket), 1000)
        self.assertLess(histogram.min, histogram.bucket_limit[0])
        self.assertEqual(histogram.max, histogram.bucket_limit[-1])
        image = events.Images("sample")[0]
        self.assertEqual((image.width, image.height), (6, 4))
        self.assertEqual(image.encoded_image_string[:4], b"\x89PNG")
        note = events.Tensors("note/text_summary")[0].tensor_proto
        self.assertEqual(note.string_val[0].decode(), "two\nlines | \"quoted\" \u00e9")
        self.assertEqual(note.tensor_shape.dim[0].size, 1)
        self.assertEqual(events.SummaryMetadata("note/text_summary").plugin_data.plugin_name, "text")
        table = events.Tensors("answers/text_summary")[0].tensor_proto.string_val[0].decode()
        self.assertIn("| question | score |", table)
        self.assertIn("| a\\|b | 1 |", table)

    def test_the_picture_is_decoded(self):
        import io
        from PIL import Image
        image = accumulated(run(self.folder, 0, 1, "all")).Images("sample")[0]
        pixels = Image.open(io.BytesIO(image.encoded_image_string))
        self.assertEqual((pixels.mode, pixels.size), ("RGB", (6, 4)))
        self.assertEqual(set(pixels.tobytes()), {128})

    def test_hyperparameters(self):
        from tensorboard.plugins.hparams import metadata, plugin_data_pb2
        events = accumulated(run(self.folder, 0, 1))

        def content(tag):
            return plugin_data_pb2.HParamsPluginData.FromString(events.SummaryMetadata(tag).plugin_data.content)

        started = content(metadata.SESSION_START_INFO_TAG).session_start_info
        self.assertEqual(started.hparams["lr"].number_value, 0.001)
        self.assertEqual(started.hparams["model/layers"].number_value, 2)
        self.assertEqual(started.hparams["model/tied"].WhichOneof("kind"), "bool_value")
        self.assertEqual(started.hparams["model/tied"].bool_value, False)
        self.assertEqual(started.hparams["name"].string_value, "small")
        experiment = content(metadata.EXPERIMENT_TAG).experiment
        self.assertEqual({info.name for info in experiment.hparam_infos}, {"lr", "model/layers", "model/tied", "name"})
        ended = content(metadata.SESSION_END_INFO_TAG).session_end_info
        self.assertEqual(ended.status, 1)  # STATUS_SUCCESS

    def test_a_run_goes_on_in_a_new_file_with_steps_in_order(self):
        run(self.folder, 0, 10)
        folder = run(self.folder, 6, 12)  # from a checkpoint of step 6
        self.assertEqual(len([name for name in os.listdir(folder) if name.startswith("events.")]), 2)
        losses = accumulated(folder).Scalars("loss")
        self.assertEqual([event.step for event in losses], list(range(12)))

    def test_every_checksum_is_right(self):
        from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New
        folder = run(self.folder, 0, 100, "all")
        name = next(name for name in os.listdir(folder) if name.startswith("events."))
        reader = PyRecordReader_New(os.path.join(folder, name))  # which checks each of them
        records = 0
        while True:
            try:
                reader.GetNext()
            except Exception as end:  # its end of file, of a type that moves between versions
                self.assertIn("OutOfRange", type(end).__name__)
                break
            records += 1
        self.assertEqual(records, 1 + 1 + 100 + 3 + 1)


def main():
    if len(sys.argv) > 2:
        python = sys.argv[2]
        has_package = os.access(python, os.X_OK) and subprocess.run(
            [python, "-c", "import tensorboard"], stderr=subprocess.DEVNULL, check=False).returncode == 0
        if not has_package:
            print(f"skipped: {python} has no tensorboard; tools/setup.sh --torch installs it")
            return SKIPPED
        return subprocess.run([python, "-B", __file__, sys.argv[1]], check=False).returncode
    return 0 if unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
