//! Checkpoints: one file per checkpoint, replaced atomically, verified before anything is used.
//!
//! A checkpoint is a [safetensors] file with the trained parameters and both moments of each. The
//! metadata of the file has a JSON [`Header`]: configuration, next step, fingerprint of the data,
//! losses so far, and a SHA-256 digest of the whole file. Frozen weights are not stored. They come
//! from the seed or from a model directory; the header has the version of the generator and the
//! digest of the model.
//!
//! A directory holds `step-<n>.safetensors` files and `latest`, a file that names the newest. The
//! file `best`, if there is one, names the checkpoint with the lowest held-out loss. Each file is
//! first written to a temporary file in the same directory, synchronized, and then renamed, and
//! `latest` is written last. `latest` therefore always names a complete file.
//!
//! Only one run at a time writes to a directory; it keeps `.lock` locked. The last two checkpoints
//! of the run and its best one are kept; files of other runs are never removed. A file of another
//! run with the name of a new checkpoint is renamed to `….safetensors.old-1`. If a loss is not
//! finite, `latest` returns to the newest checkpoint that was followed by a finite loss.
//!
//! [safetensors]: https://github.com/huggingface/safetensors

mod difference;
mod directory;
mod error;
mod header;
mod part;
mod read;
mod write;

pub use directory::{CheckpointDirectory, DirectoryLock};
pub use error::{CheckpointError, Kept};
pub use header::{Header, HeldOutLoss};
pub(crate) use part::state_order;
pub use part::{StatePart, StateReader};
pub use read::Checkpoint;
pub use write::write_checkpoint;
