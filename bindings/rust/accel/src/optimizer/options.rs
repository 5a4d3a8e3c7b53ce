//! What optimizers are made with; names and defaults of `torch.optim`.
use crate::options::{constants, options};

constants! {
    /// How Muon scales the learning rate of an A x B matrix.
    MuonAdjust {
        /// By sqrt(max(1, A / B)).
        Original = ACCEL_MUON_ADJUST_ORIGINAL,
        /// By 0.2 sqrt(max(A, B)): rates that were found for AdamW can be kept.
        MatchRmsAdamw = ACCEL_MUON_ADJUST_MATCH_RMS_ADAMW,
    }
}

options! {
    /// Of Adam (Kingma, Ba, 2015) and AdamW (Loshchilov, Hutter, 2019).
    AdamOptions(accel_adam_options_t = ACCEL_ADAM_OPTIONS_INIT) {
        /// Default 1e-3.
        lr: f64,
        /// Default 0.9.
        beta1: f64,
        /// Default 0.999.
        beta2: f64,
        /// Default 1e-8.
        eps: f64,
        /// Default 0 for Adam, 0.01 for AdamW.
        weight_decay: f64,
        /// Default false.
        amsgrad: bool,
        /// Default false.
        maximize: bool,
    }
}

options! {
    /// Of stochastic gradient descent with momentum.
    SgdOptions(accel_sgd_options_t = ACCEL_SGD_OPTIONS_INIT) {
        /// Default 1e-3.
        lr: f64,
        /// Default 0.
        momentum: f64,
        /// Default 0.
        dampening: f64,
        /// Default 0.
        weight_decay: f64,
        /// Default false.
        nesterov: bool,
        /// Default false.
        maximize: bool,
    }
}

options! {
    /// Of Adagrad (Duchi, Hazan, Singer, 2011).
    AdagradOptions(accel_adagrad_options_t = ACCEL_ADAGRAD_OPTIONS_INIT) {
        /// Default 1e-2.
        lr: f64,
        /// Default 0.
        lr_decay: f64,
        /// Default 0.
        weight_decay: f64,
        /// Default 0.
        initial_accumulator_value: f64,
        /// Default 1e-10.
        eps: f64,
        /// Default false.
        maximize: bool,
    }
}

options! {
    /// Of RMSprop (Hinton, 2012).
    RmspropOptions(accel_rmsprop_options_t = ACCEL_RMSPROP_OPTIONS_INIT) {
        /// Default 1e-2.
        lr: f64,
        /// Default 0.99.
        alpha: f64,
        /// Default 1e-8.
        eps: f64,
        /// Default 0.
        weight_decay: f64,
        /// Default 0.
        momentum: f64,
        /// Default false.
        centered: bool,
        /// Default false.
        maximize: bool,
    }
}

options! {
    /// Of Adamax (Kingma, Ba, 2015).
    AdamaxOptions(accel_adamax_options_t = ACCEL_ADAMAX_OPTIONS_INIT) {
        /// Default 2e-3.
        lr: f64,
        /// Default 0.9.
        beta1: f64,
        /// Default 0.999.
        beta2: f64,
        /// Default 1e-8.
        eps: f64,
        /// Default 0.
        weight_decay: f64,
        /// Default false.
        maximize: bool,
    }
}

options! {
    /// Of NAdam (Dozat, 2016).
    NadamOptions(accel_nadam_options_t = ACCEL_NADAM_OPTIONS_INIT) {
        /// Default 2e-3.
        lr: f64,
        /// Default 0.9.
        beta1: f64,
        /// Default 0.999.
        beta2: f64,
        /// Default 1e-8.
        eps: f64,
        /// Default 0.
        weight_decay: f64,
        /// Default 4e-3.
        momentum_decay: f64,
        /// As in AdamW. Default false.
        decoupled_weight_decay: bool,
        /// Default false.
        maximize: bool,
    }
}

options! {
    /// Of RAdam (Liu et al., 2020).
    RadamOptions(accel_radam_options_t = ACCEL_RADAM_OPTIONS_INIT) {
        /// Default 1e-3.
        lr: f64,
        /// Default 0.9.
        beta1: f64,
        /// Default 0.999.
        beta2: f64,
        /// Default 1e-8.
        eps: f64,
        /// Default 0.
        weight_decay: f64,
        /// As in AdamW. Default false.
        decoupled_weight_decay: bool,
        /// Default false.
        maximize: bool,
    }
}

options! {
    /// Of Lion (Chen et al., 2023).
    LionOptions(accel_lion_options_t = ACCEL_LION_OPTIONS_INIT) {
        /// Default 1e-4.
        lr: f64,
        /// Default 0.9.
        beta1: f64,
        /// Default 0.99.
        beta2: f64,
        /// Default 0.
        weight_decay: f64,
        /// Default false.
        maximize: bool,
    }
}

options! {
    /// Of LAMB (You et al., 2020).
    LambOptions(accel_lamb_options_t = ACCEL_LAMB_OPTIONS_INIT) {
        /// Default 1e-3.
        lr: f64,
        /// Default 0.9.
        beta1: f64,
        /// Default 0.999.
        beta2: f64,
        /// Default 1e-6.
        eps: f64,
        /// Default 0.01.
        weight_decay: f64,
        /// Default false.
        maximize: bool,
    }
}

options! {
    /// Of Adafactor (Shazeer, Stern, 2018).
    AdafactorOptions(accel_adafactor_options_t = ACCEL_ADAFACTOR_OPTIONS_INIT) {
        /// Default 1e-2.
        lr: f64,
        /// Not above 0; default -0.8.
        beta2_decay: f64,
        /// Default: the epsilon of the dtype.
        eps1: f64,
        /// Default 1e-3.
        eps2: f64,
        /// Clips the root mean square of a step. Default 1.
        d: f64,
        /// Default 0.
        weight_decay: f64,
        /// Default false.
        maximize: bool,
    }
}

options! {
    /// Of Muon (Jordan et al., 2024).
    MuonOptions(accel_muon_options_t = ACCEL_MUON_OPTIONS_INIT) {
        /// Default 1e-3.
        lr: f64,
        /// Default 0.1.
        weight_decay: f64,
        /// Default 0.95.
        momentum: f64,
        /// A coefficient of the polynomial; default 3.4445.
        ns_a: f64,
        /// Default -4.775.
        ns_b: f64,
        /// Default 2.0315.
        ns_c: f64,
        /// Default 1e-7.
        eps: f64,
        /// Default true.
        nesterov: bool,
        /// 1 to 99; default 5.
        ns_steps: i32,
        /// Default `Original`.
        adjust_lr_fn: MuonAdjust,
    }
}

options! {
    /// Of LOMO (Lv et al., 2023).
    LomoOptions(accel_lomo_options_t = ACCEL_LOMO_OPTIONS_INIT) {
        /// Default 1e-3.
        lr: f64,
        /// The most that the norm of all gradients may be. Default: none.
        clip_grad_norm: f64,
        /// The most that an element of a gradient may be. Default: none.
        clip_grad_value: f64,
    }
}

options! {
    /// Of AdaLomo (Lv et al., 2023).
    AdalomoOptions(accel_adalomo_options_t = ACCEL_ADALOMO_OPTIONS_INIT) {
        /// Default 1e-3.
        lr: f64,
        /// Default 0.
        weight_decay: f64,
        /// Not above 0; default -0.8.
        decay_rate: f64,
        /// Added to the squares of gradients. Default 1e-30.
        eps1: f64,
        /// The least size of a parameter that counts. Default 1e-3.
        eps2: f64,
        /// The most that the root mean square of an update may be. Default 1.
        clip_threshold: f64,
        /// The most that the norm of all gradients may be. Default: none.
        clip_grad_norm: f64,
        /// The most that an element of a gradient may be. Default: none.
        clip_grad_value: f64,
    }
}

options! {
    /// Of schedule-free SGD (Defazio et al., 2024).
    ScheduleFreeSgdOptions(accel_schedule_free_sgd_options_t = ACCEL_SCHEDULE_FREE_SGD_OPTIONS_INIT) {
        /// Default 1.
        lr: f64,
        /// Of the average, in (0, 1). Default 0.9.
        momentum: f64,
        /// Default 0.
        weight_decay: f64,
        /// Updates in which the learning rate grows from 0. Default 0.
        warmup_steps: f64,
        /// The weight of an iterate grows with the step to this power. Default 0.
        r: f64,
        /// And with the largest learning rate so far to this power. Default 2.
        weight_lr_power: f64,
        /// Default false.
        maximize: bool,
    }
}

options! {
    /// Of schedule-free AdamW (Defazio et al., 2024).
    ScheduleFreeAdamwOptions(accel_schedule_free_adamw_options_t = ACCEL_SCHEDULE_FREE_ADAMW_OPTIONS_INIT) {
        /// Default 2.5e-3.
        lr: f64,
        /// Of the average, in (0, 1). Default 0.9.
        beta1: f64,
        /// Of the second moment. Default 0.999.
        beta2: f64,
        /// Default 1e-8.
        eps: f64,
        /// Default 0.
        weight_decay: f64,
        /// Updates in which the learning rate grows from 0. Default 0.
        warmup_steps: f64,
        /// The weight of an iterate grows with the step to this power. Default 0.
        r: f64,
        /// And with the largest learning rate so far to this power. Default 2.
        weight_lr_power: f64,
        /// Default false.
        maximize: bool,
    }
}
