# SPDX-License-Identifier: Apache-2.0
"""Folders of models of images: transformers writes them, accel opens, changes and saves them, and transformers reads them back."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import accel  # noqa: E402
from accel import nn  # noqa: E402

TOWER = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 10, "image_size": 8, "patch_size": 4}
TEXT = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 10, "vocab_size": 13, "projection_dim": 6,
        "max_position_embeddings": 9, "eos_token_id": 11, "bos_token_id": 1, "pad_token_id": 0}
KINDS = {
    "ViTModel": TOWER,
    "ViTForImageClassification": {**TOWER, "num_labels": 3},
    "CLIPVisionModel": TOWER,
    "CLIPVisionModelWithProjection": {**TOWER, "projection_dim": 6},
    "CLIPModel": {"text_config": TEXT, "vision_config": TOWER, "projection_dim": 6},
    "CLIPForImageClassification": {"text_config": TEXT, "vision_config": TOWER, "num_labels": 3},
    "ResNetModel": {"embedding_size": 6, "hidden_sizes": [8, 12], "depths": [2, 1]},
    "ResNetForImageClassification": {"embedding_size": 6, "hidden_sizes": [8], "depths": [2], "num_labels": 3},
}


def first_output(model, given):
    with torch.no_grad():
        found = model(**given)
    if isinstance(found, transformers.utils.ModelOutput):  # by the order of accel
        return next(found[name] for name in ("logits_per_image", "image_embeds", "logits", "last_hidden_state") if found.get(name) is not None)
    return torch.as_tensor(found[0] if isinstance(found, (list, tuple)) else found)


@pytest.mark.parametrize("name", KINDS)
def test_transformers_reads_what_accel_has_saved(name, tmp_path):
    kind = getattr(transformers, name)
    torch.manual_seed(3)
    written = kind(kind.config_class(**KINDS[name])).eval()
    source, saved = tmp_path / "source", tmp_path / "saved"
    written.save_pretrained(source)
    given = {"pixel_values": torch.randn(2, 3, 8, 8)}
    if name == "CLIPModel":
        given["input_ids"] = torch.tensor([[3, 5, 11], [7, 11, 0]])

    model = nn.from_folder(str(source)).eval()
    torch.testing.assert_close(first_output(model, given), first_output(written, given), rtol=1e-4, atol=1e-5)
    with accel.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    accelerator = accel.Accelerator(cpu=True)
    accelerator.save_model_folder(model, str(source), str(saved))
    back, report = kind.from_pretrained(saved, output_loading_info=True)
    assert not any(report[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    for parameter, original in zip(back.parameters(), written.parameters()):
        assert torch.equal(parameter, original / 2)
    torch.testing.assert_close(first_output(model, given), first_output(back.eval(), given), rtol=1e-4, atol=1e-5)
    accelerator.end_training()
