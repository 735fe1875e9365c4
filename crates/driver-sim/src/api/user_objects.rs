//! User objects, which graphs keep alive.

use std::collections::BTreeMap;
use std::ffi::c_void;

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid};
use crate::state::{State, UserObject};
use crate::work::{HostCall, HostTarget};

/// Refuses counts of 0 and above the driver's maximum.
fn check_count(count: u32) -> Call {
    match count == 0 || count > i32::MAX as u32 {
        true => Err(invalid(Rule::UserObjectCount)),
        false => Ok(()),
    }
}

impl State {
    fn known_object(&mut self, object: CUuserObject) -> Result<CUuserObject, Refusal> {
        match self.user_objects.contains(object) {
            true => Ok(object),
            false if object.is_null() => Err(invalid(Rule::UserObjectNull)),
            false => Err(self.undefined("the user object does not exist or was destroyed")),
        }
    }

    pub(crate) fn cuUserObjectCreate(
        &mut self,
        object: Out<CUuserObject>,
        pointer: Out<c_void>,
        destroy: CUhostFn,
        count: u32,
        flags: u32,
    ) -> Call {
        let function = destroy.ok_or(invalid(Rule::HostNull))?;
        // Unlike other counts, the initial count has no maximum.
        if count == 0 {
            return Err(invalid(Rule::UserObjectCount));
        }
        if flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC {
            return Err(invalid(Rule::UserObjectFlags));
        }
        let handle = self.handle();
        let target = HostTarget::Function(function);
        let destructor = HostCall { target, data: pointer.pointer() };
        object.write(handle)?;
        self.user_objects.insert(handle, UserObject { destructor, references: u64::from(count) });
        Ok(())
    }

    pub(crate) fn cuUserObjectRetain(&mut self, object: CUuserObject, count: u32) -> Call {
        let object = self.known_object(object)?;
        check_count(count)?;
        self.user_objects.get_mut(object)?.references += u64::from(count);
        Ok(())
    }

    pub(crate) fn cuUserObjectRelease(&mut self, object: CUuserObject, count: u32) -> Call {
        let object = self.known_object(object)?;
        check_count(count)?;
        if self.user_objects.get(object)?.references < u64::from(count) {
            return Err(self.undefined("more references are released than the user object has"));
        }
        self.release_objects(BTreeMap::from([(object, count)]));
        Ok(())
    }

    pub(crate) fn cuGraphRetainUserObject(
        &mut self,
        graph: CUgraph,
        object: CUuserObject,
        count: u32,
        flags: u32,
    ) -> Call {
        let graph = self.known_graph(graph)?;
        let object = self.known_object(object)?;
        check_count(count)?;
        if flags & !CU_GRAPH_USER_OBJECT_MOVE != 0 {
            return Err(invalid(Rule::UserObjectFlags));
        }
        if flags & CU_GRAPH_USER_OBJECT_MOVE == 0 {
            self.user_objects.get_mut(object)?.references += u64::from(count);
        }
        *self.graphs.get_mut(graph)?.objects.entry(object).or_default() += count;
        Ok(())
    }

    pub(crate) fn cuGraphReleaseUserObject(
        &mut self,
        graph: CUgraph,
        object: CUuserObject,
        count: u32,
    ) -> Call {
        let graph = self.known_graph(graph)?;
        let object = self.known_object(object)?;
        check_count(count)?;
        let held = &mut self.graphs.get_mut(graph)?.objects;
        let left = held.get(&object).and_then(|held| held.checked_sub(count));
        match left {
            None => {
                let message = "a graph gives up more references than it holds";
                return Err(self.undefined(message));
            }
            Some(0) => held.remove(&object),
            Some(left) => held.insert(object, left),
        };
        self.release_objects(BTreeMap::from([(object, count)]));
        Ok(())
    }
}
