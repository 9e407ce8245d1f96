"""What people and programs read about a network on the accelerator: one model, and its renderers."""

from tvm_sramtile.report.model import HostGroup, NetworkReport, StepReport, network_report

__all__ = ["HostGroup", "NetworkReport", "StepReport", "network_report"]
