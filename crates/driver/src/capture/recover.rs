//! Testing and retiring a stream after a failed capture.

use retrograph_driver_sys::{CUresult, CUstreamCaptureStatus};

use crate::error::{Error, Result};
use crate::stream::Stream;

impl Stream {
    /// Returns whether the stream works after its capture has failed, and retires it if it still
    /// captures.
    pub(super) fn recover(&self) -> bool {
        let captures = self.captures();
        if captures == Ok(true) {
            self.retire();
        }
        self.probe(captures)
    }

    /// Returns whether the stream works after a capture could not begin. A capture that another
    /// thread has begun on it is not ended.
    pub(super) fn works(&self) -> bool {
        self.probe(self.captures())
    }

    fn probe(&self, captures: Result<bool>) -> bool {
        let outcome = match captures {
            Ok(true) => Err(Error::StreamRetired),
            Ok(false) => self.synchronize(),
            Err(error) => Err(error),
        };
        if let Err(error) = &outcome {
            tracing::warn!(%error, "the stream does not work after a failed capture");
        }
        outcome.is_ok()
    }

    /// Whether the stream is in a capture, active or broken.
    pub(crate) fn captures(&self) -> Result<bool> {
        let context = self.context();
        context.bind()?;
        let (code, captures) = self.query_capture();
        context.check("cuStreamIsCapturing", code)?;
        Ok(captures)
    }

    /// The code of `cuStreamIsCapturing`, and whether the stream is in a capture, active or broken.
    /// The context must be current.
    pub(crate) fn query_capture(&self) -> (CUresult, bool) {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let query = self.context().table().cuStreamIsCapturing;
        // SAFETY: the stream lives, and the out pointer is valid.
        let code = unsafe { query(self.raw(), &mut status) };
        (code, status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }
}
