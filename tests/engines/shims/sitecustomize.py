"""Lets PyPI's torchvision be imported beside a CPU build of torch.

Its C++ part is linked against a CUDA torch and does not load, so the operators whose gradients and fake kernels
`torchvision/_meta_registrations.py` registers (version 0.28) are unknown to torch and the import fails. Their schemas
are declared just before that module is imported; nothing here ever calls them.
"""

import importlib.abc
import sys
from collections.abc import Sequence
from types import ModuleType

_SPATIAL = "float spatial_scale, int pooled_height, int pooled_width"
_SHAPE = "int batch_size, int channels, int height, int width"
_DEFORM = (
    "int stride_h, int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, "
    "int groups, int offset_groups, bool use_mask"
)
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    f"roi_align(Tensor input, Tensor rois, {_SPATIAL}, int sampling_ratio, bool aligned) -> Tensor",
    "qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, "
    f"int rois_zero_point, {_SPATIAL}, int sampling_ratio, bool aligned) -> Tensor",
    f"_roi_align_backward(Tensor grad, Tensor rois, {_SPATIAL}, {_SHAPE}, int sampling_ratio, bool aligned) -> Tensor",
    f"roi_pool(Tensor input, Tensor rois, {_SPATIAL}) -> (Tensor, Tensor)",
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_SPATIAL}, {_SHAPE}) -> Tensor",
    f"ps_roi_align(Tensor input, Tensor rois, {_SPATIAL}, int sampling_ratio) -> (Tensor, Tensor)",
    f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_SPATIAL}, int sampling_ratio, "
    f"{_SHAPE}) -> Tensor",
    f"ps_roi_pool(Tensor input, Tensor rois, {_SPATIAL}) -> (Tensor, Tensor)",
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_SPATIAL}, {_SHAPE}) -> Tensor",
    f"deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, {_DEFORM}) -> Tensor",
    "_deform_conv2d_backward(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    f"{_DEFORM}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)


class _DeclareOperators(importlib.abc.MetaPathFinder):
    """Finds nothing; uses the moment at which the import system asks."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname != "torchvision._meta_registrations":
            return
        sys.meta_path.remove(self)
        import torch

        if hasattr(torch.ops.torchvision, "nms"):  # the C++ part did load
            return
        # Kept for the life of the process: a collected Library takes its operators with it.
        self.library = torch.library.Library("torchvision", "FRAGMENT")
        for schema in _SCHEMAS:
            self.library.define(schema)
        _kept.append(self)


_kept: list[_DeclareOperators] = []
sys.meta_path.insert(0, _DeclareOperators())
