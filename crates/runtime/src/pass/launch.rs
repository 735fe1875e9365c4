//! Launches of `retrograph-kernels` as operations, and their checks.

use retrograph_kernel_abi::{Argument, ParameterKind};
use retrograph_kernels::Launch;

use super::access::BufferAccess;
use super::error::PassError;
use super::operation::{OpId, Operation, OperationKind};
use super::{BufferId, Pass};

/// With the feature `kernels`.
impl Pass {
    /// Appends a kernel launch.
    ///
    /// # Errors
    /// If arguments do not match the kernel's parameters, or a slice is refused: see [`PassError`].
    pub fn launch(&mut self, launch: Launch<BufferId>) -> Result<OpId, PassError> {
        self.append(OperationKind::Launch(launch))
    }

    /// Checks that arguments match the kernel's parameters in number and type.
    pub(super) fn check_parameters(
        &self,
        operation: &Operation,
        launch: &Launch<BufferId>,
    ) -> Result<(), PassError> {
        let (given, expected) = (launch.arguments().len(), launch.kernel().parameters.len());
        if given != expected {
            let operation = operation.name.clone();
            return Err(PassError::ArgumentCount { operation, given, expected });
        }
        let pairs = launch.arguments().iter().zip(launch.kernel().parameters);
        match pairs
            .enumerate()
            .find(|(_, (argument, parameter))| kind_of(argument) != Some(parameter.kind))
        {
            None => Ok(()),
            Some((index, (_, parameter))) => Err(PassError::ArgumentKind {
                operation: operation.name.clone(),
                index,
                parameter: parameter.name,
            }),
        }
    }

    /// Checks that another argument of a kernel accesses the bytes that a tensor map describes,
    /// since a map itself is not an access.
    pub(super) fn check_tensor_maps(&self, operation: &Operation) -> Result<(), PassError> {
        let OperationKind::Launch(launch) = &operation.kind else { return Ok(()) };
        for argument in launch.arguments() {
            let Argument::TensorMap(Some(map)) = argument else { continue };
            let covers = |access: &BufferAccess| {
                let (start, end) = (access.bytes.start, access.bytes.end);
                access.buffer == map.buffer && start <= map.bytes.start && map.bytes.end <= end
            };
            if !operation.accesses.iter().any(covers) {
                let Some(buffer) = self.buffer(map.buffer) else {
                    let (operation, pass) = (operation.name.clone(), self.name.clone());
                    return Err(PassError::WrongPass { operation, pass });
                };
                return Err(PassError::UndeclaredTensorMap {
                    operation: operation.name.clone(),
                    buffer: buffer.name.clone(),
                    bytes: map.bytes.clone(),
                });
            }
        }
        Ok(())
    }
}

/// The kind of parameter that an argument is for; `None` if our kernels have no such parameter.
fn kind_of(argument: &Argument<BufferId>) -> Option<ParameterKind> {
    Some(match argument {
        Argument::Buffer(_) | Argument::Null | Argument::Table(_) => ParameterKind::Pointer,
        Argument::U32(_) => ParameterKind::U32,
        Argument::U64(_) => ParameterKind::U64,
        Argument::F32(_) => ParameterKind::F32,
        Argument::TensorMap(_) => ParameterKind::TensorMap,
        Argument::Value(_) => return None,
    })
}
