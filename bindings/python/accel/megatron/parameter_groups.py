# SPDX-License-Identifier: Apache-2.0
"""Groups of parameters by conditions of the plugin: some have no weight decay, some another learning rate."""


def _wanted(plugin, name, parameter):
    """(has no weight decay, has a scaled rate)"""
    return (plugin.no_wd_decay_cond is not None and bool(plugin.no_wd_decay_cond(name, parameter)),
            plugin.scale_lr_cond is not None and bool(plugin.scale_lr_cond(name, parameter)))


def split(optimizer, model, plugin):
    """Splits the groups of an optimizer that is not prepared yet. The conditions are functions of a parameter's name and of itself. Without them the groups
    stay as the program made them."""
    if plugin.no_wd_decay_cond is None and plugin.scale_lr_cond is None:
        return
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = []
    for group in optimizer.param_groups:
        parts: dict = {}
        for parameter in group["params"]:
            parts.setdefault(_wanted(plugin, names.get(id(parameter), ""), parameter), []).append(parameter)
        for (is_without_decay, is_scaled), parameters in sorted(parts.items(), key=lambda part: part[0]):
            part = {**group, "params": parameters, "wd_mult": 0.0 if is_without_decay else 1.0, "lr_mult": plugin.lr_mult if is_scaled else 1.0}
            part["lr"] = group["lr"] * part["lr_mult"]
            if is_without_decay:
                part["weight_decay"] = 0.0
            groups.append(part)
    optimizer.param_groups[:] = groups


def make_optimizer(args, model, plugin):
    """The optimizer that Megatron's arguments describe, for a model that a function of the program has made."""
    import torch

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if args.optimizer == "adam":
        made = torch.optim.AdamW(parameters, lr=args.lr, betas=(args.adam_beta1, args.adam_beta2), eps=args.adam_eps, weight_decay=args.weight_decay)
    elif args.optimizer == "sgd":
        made = torch.optim.SGD(parameters, lr=args.lr, momentum=args.sgd_momentum, weight_decay=args.weight_decay)
    else:
        raise ValueError(f"optimizer={args.optimizer!r} of Megatron's arguments: expected 'adam' or 'sgd'")
    split(made, model, plugin)
    return made
