//! Memory pools.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Pool, State};

impl State {
    pub(crate) fn cuMemPoolCreate(
        &mut self,
        pool: Out<CUmemoryPool>,
        properties: In<CUmemPoolProps>,
    ) -> Call {
        let given = properties.get()?;
        let ordinal = self.pool_location(&given)?;
        let handle = self.handle();
        pool.put(handle)?;
        self.pools.insert(handle, Pool::new(ordinal, given.maxSize as u64, false));
        Ok(())
    }

    /// The device of a new pool.
    fn pool_location(&mut self, given: &CUmemPoolProps) -> Result<usize, Refusal> {
        use CUmemAllocationHandleType as Handle;
        use CUmemAllocationType as Kind;
        use CUmemLocationType as Location;
        // A pool of managed memory need not have a location.
        if given.allocType == Kind::CU_MEM_ALLOCATION_TYPE_MANAGED {
            return Err(self.unsupported("pools of managed memory are not simulated"));
        }
        match given.location.r#type {
            Location::CU_MEM_LOCATION_TYPE_DEVICE => {}
            Location::CU_MEM_LOCATION_TYPE_HOST_NUMA if given.location.id != 0 => {
                return Err(invalid(Rule::PoolNode));
            }
            Location::CU_MEM_LOCATION_TYPE_HOST | Location::CU_MEM_LOCATION_TYPE_HOST_NUMA => {
                return Err(self.unsupported("pools of host memory are not simulated"));
            }
            _ => return Err(invalid(Rule::PoolLocation)),
        }
        if given.allocType != Kind::CU_MEM_ALLOCATION_TYPE_PINNED {
            return Err(invalid(Rule::PoolKind));
        }
        let is_exported = match given.handleTypes {
            Handle::CU_MEM_HANDLE_TYPE_NONE => false,
            Handle::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            | Handle::CU_MEM_HANDLE_TYPE_FABRIC => true,
            _ => return Err(invalid(Rule::PoolHandles)),
        };
        let ordinal = self.device_index(given.location.id);
        let ordinal = ordinal.map_err(|_| invalid(Rule::PoolDevice))?;
        // The recorded device has handles. Here no call can export one.
        if is_exported && !self.config.recorded_attributes {
            return Err(
                self.unsupported("pools with handles for other processes are not simulated")
            );
        }
        Ok(ordinal)
    }

    pub(crate) fn cuMemPoolDestroy(&mut self, pool: CUmemoryPool) -> Call {
        self.refuse_unsafe()?;
        let found = self.pool(pool)?;
        if found.is_default {
            return Err(invalid(Rule::PoolDefault));
        }
        // Allocations from the pool stay valid.
        found.is_destroyed = true;
        self.current_pools.retain(|_, present| *present != pool);
        Ok(())
    }

    pub(crate) fn cuMemPoolTrimTo(&mut self, pool: CUmemoryPool, bytes_to_keep: usize) -> Call {
        self.refuse_unsafe()?;
        self.pool(pool)?.trim(bytes_to_keep as u64);
        Ok(())
    }

    pub(crate) fn cuMemPoolGetAttribute(
        &mut self,
        pool: CUmemoryPool,
        attribute: CUmemPool_attribute,
        value: Out<c_void>,
    ) -> Call {
        use CUmemPool_attribute as A;
        let found = self.pool(pool)?;
        let number = match attribute {
            A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
            | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                return value.cast().put(found.reuse[attribute.0 as usize - 1]);
            }
            A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => found.threshold,
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => found.reserved,
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => found.reserved_high,
            A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => found.used,
            A::CU_MEMPOOL_ATTR_USED_MEM_HIGH => found.used_high,
            _ => return Err(invalid(Rule::PoolAttribute)),
        };
        value.cast().put(number)
    }

    pub(crate) fn cuMemPoolSetAttribute(
        &mut self,
        pool: CUmemoryPool,
        attribute: CUmemPool_attribute,
        value: Out<c_void>,
    ) -> Call {
        use CUmemPool_attribute as A;
        self.refuse_unsafe()?;
        self.pool(pool)?;
        if value.is_null() {
            return Err(self.undefined("the value of an attribute of a pool is read through null"));
        }
        let found = self.pool(pool)?;
        match attribute {
            A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
            | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                let on = value.cast::<i32>().get()? != 0;
                found.reuse[attribute.0 as usize - 1] = i32::from(on);
            }
            A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => found.threshold = value.cast().get()?,
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if value.cast::<u64>().get()? == 0 => {
                found.reserved_high = found.reserved;
            }
            A::CU_MEMPOOL_ATTR_USED_MEM_HIGH if value.cast::<u64>().get()? == 0 => {
                found.used_high = found.used;
            }
            _ => return Err(invalid(Rule::PoolAttribute)),
        }
        Ok(())
    }

    pub(crate) fn cuMemPoolGetAccess(
        &mut self,
        flags: Out<CUmemAccess_flags>,
        pool: CUmemoryPool,
        location: Out<CUmemLocation>,
    ) -> Call {
        use CUmemLocationType as Location;
        let ordinal = self.undestroyed_pool(pool)?.ordinal;
        let location = location.get()?;
        let is_own = match location.r#type {
            Location::CU_MEM_LOCATION_TYPE_DEVICE => self.access_device(&location)? == ordinal,
            Location::CU_MEM_LOCATION_TYPE_HOST | Location::CU_MEM_LOCATION_TYPE_HOST_NUMA => false,
            _ => return Err(invalid(Rule::PoolAccess)),
        };
        flags.put(match is_own {
            true => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            false => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
        })
    }

    fn access_device(&self, location: &CUmemLocation) -> Result<usize, Refusal> {
        self.device_index(location.id).map_err(|_| invalid(Rule::PoolAccess))
    }

    pub(crate) fn cuMemPoolSetAccess(
        &mut self,
        pool: CUmemoryPool,
        descriptors: In<CUmemAccessDesc>,
        count: usize,
    ) -> Call {
        use CUmemAccess_flags as Flags;
        let ordinal = self.pool(pool)?.ordinal;
        if count == 0 {
            return Err(invalid(Rule::PoolAccess));
        }
        for given in descriptors.list(count)? {
            if given.location.r#type != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
                return Err(refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED, Rule::PoolHost));
            }
            if self.access_device(&given.location)? != ordinal {
                return Err(self.unsupported("access of other devices is not simulated"));
            }
            match given.flags {
                Flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE => {}
                Flags::CU_MEM_ACCESS_FLAGS_PROT_NONE => {
                    // The device of a pool always has access.
                    let code = CUresult::CUDA_ERROR_INVALID_DEVICE;
                    return Err(refuse(code, Rule::PoolOwn));
                }
                Flags::CU_MEM_ACCESS_FLAGS_PROT_READ => {
                    let code = CUresult::CUDA_ERROR_NOT_SUPPORTED;
                    return Err(refuse(code, Rule::PoolReadOnly));
                }
                _ => return Err(self.unsupported("other kinds of access")),
            }
        }
        Ok(())
    }

    pub(crate) fn cuDeviceGetDefaultMemPool(
        &mut self,
        pool: Out<CUmemoryPool>,
        device: CUdevice,
    ) -> Call {
        let ordinal = self.device_index(device)?;
        let found = self.default_pool(ordinal);
        pool.put(found)
    }

    pub(crate) fn cuDeviceGetMemPool(&mut self, pool: Out<CUmemoryPool>, device: CUdevice) -> Call {
        let ordinal = self.device_index(device).map_err(|_| invalid(Rule::PoolDevice))?;
        let found = match self.current_pools.get(&ordinal) {
            Some(present) => *present,
            None => self.default_pool(ordinal),
        };
        pool.put(found)
    }

    pub(crate) fn cuDeviceSetMemPool(&mut self, device: CUdevice, pool: CUmemoryPool) -> Call {
        self.refuse_unsafe()?;
        let ordinal = self.device_index(device).map_err(|_| invalid(Rule::PoolDevice))?;
        if self.undestroyed_pool(pool)?.ordinal != ordinal {
            return Err(invalid(Rule::PoolDevice));
        }
        self.current_pools.insert(ordinal, pool);
        Ok(())
    }
}
