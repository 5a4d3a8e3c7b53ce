# SPDX-License-Identifier: Apache-2.0
"""Aim."""

from operator import attrgetter

from .tracker import PackageTracker


class AimTracker(PackageTracker):
    """A run of Aim in the repository `logging_dir`; `settings` are those of aim.Run()."""

    name = "aim"
    requires_logging_directory = True
    writer = None

    def __init__(self, run_name, logging_dir=".", **kwargs):
        super().__init__(run_name, **kwargs)
        self.aim_repo_path = logging_dir

    tracker = property(attrgetter("writer"))

    def start(self):
        from aim import Run

        self.writer = Run(repo=self.aim_repo_path, **self.init_kwargs)
        self.writer.name = self.run_name

    def store_init_configuration(self, values):
        self.writer["hparams"] = values

    def log(self, values, step=None, **kwargs):
        """Any values that Aim tracks."""
        for name, value in values.items():
            self.writer.track(value, name=name, step=step, **kwargs)

    def log_images(self, values, step=None, kwargs=None):
        """Images by name, or pairs of an image and its caption. `kwargs`: {"aim_image": settings of aim.Image(), "track": of track()}."""
        import aim

        settings = kwargs or {}
        for name, value in values.items():
            image, caption = value if isinstance(value, tuple) else (value, "")
            made = aim.Image(image, caption=caption, **settings.get("aim_image", {}))
            self.writer.track(made, name=name, step=step, **settings.get("track", {}))

    def finish(self):
        self.writer.close()
