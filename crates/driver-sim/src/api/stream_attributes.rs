//! Stream attributes. They are hints and do not change results.

use retrograph_driver_sys::*;

use super::streams::GREATEST_PRIORITY;
use crate::argument::{Call, In, Out};
use crate::refusal::{Rule, invalid};
use crate::state::State;

impl State {
    pub(crate) fn cuStreamGetAttribute(
        &mut self,
        stream: CUstream,
        attribute: CUstreamAttrID,
        value: Out<CUstreamAttrValue>,
    ) -> Call {
        let stream = self.resolve(stream)?;
        let found = self.streams.get(stream)?;
        let (priority, policy, domain) = (found.priority, found.policy, found.domain);
        if value.is_null() {
            return Err(self.undefined("the value of an attribute is written without a check"));
        }
        // Writes only the bytes of this attribute.
        match attribute {
            CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_PRIORITY => value.cast().write(priority),
            CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY => {
                value.cast().write(policy)
            }
            CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN => value.cast().write(domain),
            CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW => {
                value.cast().write([0u64; 4])
            }
            CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => {
                Err(self.unsupported("maps of memory domains are not simulated"))
            }
            _ => Err(invalid(Rule::StreamAttribute)),
        }
    }

    pub(crate) fn cuStreamSetAttribute(
        &mut self,
        stream: CUstream,
        attribute: CUstreamAttrID,
        value: In<CUstreamAttrValue>,
    ) -> Call {
        let stream = self.resolve(stream)?;
        if value.is_null() {
            return Err(self.undefined("the value of an attribute is read without a check"));
        }
        // Each simulated attribute is the first word of the value.
        let word: u32 = value.cast().get()?;
        let found = self.streams.get_mut(stream)?;
        match attribute {
            CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_PRIORITY => {
                found.priority = word.cast_signed().clamp(GREATEST_PRIORITY, 0);
            }
            CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY if is_policy(word) => {
                found.policy = word;
            }
            CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN if word <= 1 => {
                found.domain = word;
            }
            CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
            | CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => {
                return Err(self.unsupported("this attribute of streams is not simulated"));
            }
            _ => return Err(invalid(Rule::StreamAttribute)),
        }
        Ok(())
    }

    pub(crate) fn cuStreamCopyAttributes(&mut self, target: CUstream, source: CUstream) -> Call {
        let (target, source) = (self.resolve(target)?, self.resolve(source)?);
        let found = self.streams.get(source)?;
        let (priority, policy, domain) = (found.priority, found.policy, found.domain);
        if self.streams.get(target)?.device != found.device {
            return Err(invalid(Rule::StreamOtherContext));
        }
        let found = self.streams.get_mut(target)?;
        (found.priority, found.policy, found.domain) = (priority, policy, domain);
        Ok(())
    }
}

/// Whether a number is a synchronization policy.
fn is_policy(word: u32) -> bool {
    let first = CUsynchronizationPolicy::CU_SYNC_POLICY_AUTO;
    let last = CUsynchronizationPolicy::CU_SYNC_POLICY_BLOCKING_SYNC;
    (first.0..=last.0).contains(&word)
}
