//! User objects: reference-counted objects with a destructor, which graphs keep alive.

use std::collections::BTreeMap;

use retrograph_driver_sys::CUuserObject;

use super::State;
use crate::work::{HostCall, TaskId};

/// A user object.
pub(crate) struct UserObject {
    /// Called when the reference count reaches 0.
    pub(crate) destructor: HostCall,
    pub(crate) references: u64,
}

/// References of an instantiated graph that was destroyed before its last launch ran.
pub(crate) struct PendingRelease {
    pub(crate) after: TaskId,
    pub(crate) objects: BTreeMap<CUuserObject, u32>,
}

impl State {
    /// Adds references to objects.
    pub(crate) fn retain_objects(&mut self, objects: &BTreeMap<CUuserObject, u32>) {
        for (object, count) in objects {
            if let Ok(found) = self.user_objects.get_mut(*object) {
                found.references += u64::from(*count);
            }
        }
    }

    /// Removes references. The destructor of an object without references runs at once; hardware
    /// runs it later, on a thread of the driver.
    pub(crate) fn release_objects(&mut self, objects: BTreeMap<CUuserObject, u32>) {
        for (object, count) in objects {
            let Ok(found) = self.user_objects.get_mut(object) else { continue };
            found.references = found.references.saturating_sub(u64::from(count));
            if found.references > 0 {
                continue;
            }
            if let Ok(gone) = self.user_objects.remove(object) {
                self.run_destructor(&gone.destructor);
            }
        }
    }

    /// Removes the references of destroyed graphs whose last launch has run.
    pub(crate) fn release_completed(&mut self) {
        let (done, pending): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending_releases)
            .into_iter()
            .partition(|release| !self.tasks.contains_key(&release.after));
        self.pending_releases = pending;
        for release in done {
            self.release_objects(release.objects);
        }
    }
}
