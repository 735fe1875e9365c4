//! Launches of `retrograph-kernels` as operations, and their checks.

use retrograph_kernel_abi::{Argument, ParameterKind};
use retrograph_kernels::Launch;

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
