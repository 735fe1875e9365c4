//! Objects of the user: counted references that graphs hold, and a destructor.

use std::collections::BTreeMap;

use retrograph_driver_sys::CUuserObject;

use super::State;
use crate::work::{HostCall, TaskId};

/// An object of the user.
pub(crate) struct UserObject {
    /// Called when nobody refers to the object any more.
    pub(crate) destructor: HostCall,
    pub(crate) references: u64,
}

/// References that an instantiated graph held when it was destroyed with a launch under way.
pub(crate) struct Dying {
    pub(crate) after: TaskId,
    pub(crate) objects: BTreeMap<CUuserObject, u32>,
}

impl State {
    /// Refers to objects once more.
    pub(crate) fn retain_objects(&mut self, objects: &BTreeMap<CUuserObject, u32>) {
        for (object, count) in objects {
            if let Ok(found) = self.user_objects.get_mut(*object) {
                found.references += u64::from(*count);
            }
        }
    }

    /// Gives references up. An object that loses its last one is destroyed at once; hardware does
    /// so on a thread of its own, at some time.
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

    /// Gives up what destroyed graphs held for launches that have run by now.
    pub(crate) fn release_dying(&mut self) {
        let (done, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.dying)
            .into_iter()
            .partition(|dying| !self.tasks.contains_key(&dying.after));
        self.dying = waiting;
        for dying in done {
            self.release_objects(dying.objects);
        }
    }
}
