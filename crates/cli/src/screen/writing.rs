//! Progress of writing a model.

use indicatif::ProgressBar;
use retrograph_finetune::export::Progress;

use super::style;

/// Shows written bytes.
pub(crate) struct Writing(ProgressBar);

impl Writing {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new(0);
        bar.set_style(style("{prefix:<11} {bar:30} {bytes}/{total_bytes} {msg} {eta}"));
        bar.set_prefix("write");
        Self(bar)
    }

    pub(crate) fn show(&self, progress: Progress<'_>) {
        self.0.set_length(progress.total);
        self.0.set_position(progress.done);
        self.0.set_message(progress.name.to_owned());
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
