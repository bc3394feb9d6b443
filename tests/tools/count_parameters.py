#!/usr/bin/env python3
"""Prints how many parameters transformers counts for each model of tests/data/configs, without any weights.

The numbers of tests/unit/model/model_plan_test.cpp. Needs transformers 5 and torch (those of make_oracle.py).
"""

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

CONFIGS = Path(__file__).resolve().parents[1] / "data/configs"


def main():
    for directory in sorted(CONFIGS.iterdir()):
        config = AutoConfig.from_pretrained(directory)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        model.tie_weights()
        print(f"{directory.name} {type(model).__name__} {model.num_parameters()}")  # what is tied counts once


if __name__ == "__main__":
    main()
