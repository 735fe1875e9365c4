//! Resolves operations to commands.

use retrograph_driver::{KernelArguments, LaunchAttributes, LaunchGeometry, Result, TensorMap};
use retrograph_kernel_abi::step_parameters::FETCH_STEP_PARAMETERS;
use retrograph_kernel_abi::{Access, Argument, BufferArgument, TensorMapArgument};
#[cfg(feature = "kernels")]
use retrograph_kernels::{Dispatch, Launch};
use retrograph_ptx::SmTarget;

use super::bindings::Bindings;
use super::command::{BoundLaunch, Command};
use super::control_ring::ControlRing;
use super::error::BuildError;
use super::library_call::BoundLibraryCall;
use super::memory::Memory;
use crate::modules::{ImageKey, WarmModules};
use crate::pass::{BufferAccess, BufferId, CustomLaunch, Operation, OperationKind};

/// An entry point of an image, with the geometry and attributes of its launch.
struct Entry<'a> {
    image: ImageKey,
    name: &'a str,
    geometry: LaunchGeometry,
    attributes: LaunchAttributes,
}

impl<'a> Entry<'a> {
    fn new(image: ImageKey, name: &'a str, geometry: LaunchGeometry) -> Self {
        Self { image, name, geometry, attributes: LaunchAttributes::new() }
    }

    #[cfg(feature = "kernels")]
    fn of_launch<B>(launch: &Launch<B>, modules: &WarmModules) -> Self {
        let multiprocessors = modules.context().multiprocessors();
        let dispatch = launch.dispatch(modules.target()).for_multiprocessors(multiprocessors);
        let Dispatch { entry, grid, block, shared_bytes, .. } = dispatch;
        let geometry = LaunchGeometry { grid, block, shared_bytes };
        Self::new(ImageKey::from(launch.kernel().image), entry, geometry)
    }

    fn of_custom(launch: &'a CustomLaunch) -> Self {
        let entry = Self::new(ImageKey::from(&launch.image), &launch.entry, launch.geometry);
        Self { attributes: launch.attributes, ..entry }
    }
}

/// Resolves operations to commands.
pub(super) struct Resolver<'a> {
    pub(super) modules: &'a WarmModules,
    pub(super) memory: &'a Memory,
    pub(super) bindings: &'a Bindings,
    pub(super) ring: Option<&'a ControlRing>,
}

impl Resolver<'_> {
    pub(super) fn target(&self) -> SmTarget {
        self.modules.target()
    }

    pub(super) fn command(
        &self,
        operation: &Operation,
        first_table: usize,
    ) -> Result<Command, BuildError> {
        let (entry, arguments) = match operation.kind() {
            OperationKind::Copy { source, target } => {
                let bytes = target.bytes.len();
                let (target, source) = (self.memory.address(target), self.memory.address(source));
                return Ok(Command::Copy { target, source, bytes });
            }
            OperationKind::Fill { target, pattern } => {
                let words = target.bytes.len() / 4;
                let target = self.memory.address(target);
                return Ok(Command::Fill { target, pattern: *pattern, words });
            }
            OperationKind::Library(call) => {
                let call = BoundLibraryCall::new(operation, call, self.bindings, self.memory)?;
                return Ok(Command::Library(call));
            }
            OperationKind::FetchStepParameters => {
                let ring = self.ring.expect("there are controls, and so a ring");
                let (geometry, arguments) = self.memory.fetch_launch(ring);
                let address = |range: &BufferArgument<u64>| range.buffer + range.bytes.start as u64;
                let unused = |_: &TensorMapArgument<u64>| Ok(TensorMap::UNUSED);
                let arguments = arguments_at(&arguments, address, || 0, unused)?;
                let image = ImageKey::from(FETCH_STEP_PARAMETERS.image);
                let entry = Entry::new(image, FETCH_STEP_PARAMETERS.entry(), geometry);
                return self.launch(operation, &entry, arguments);
            }
            #[cfg(feature = "kernels")]
            OperationKind::Launch(launch) => {
                (Entry::of_launch(launch, self.modules), launch.arguments())
            }
            OperationKind::Custom(launch) => (Entry::of_custom(launch), &launch.arguments[..]),
        };
        let mut tables = first_table..;
        let table = || tables.next().map_or(0, |table| self.memory.table_address(table));
        let address = |range: &BufferAccess| self.memory.address(range);
        let arguments =
            arguments_at(arguments, address, table, |map| self.tensor_map(map)).map_err(
                |cause| BuildError::Operation { operation: operation.name().to_owned(), cause },
            )?;
        self.launch(operation, &entry, arguments)
    }

    /// The encoded tensor map, if the target has TMA.
    fn tensor_map(&self, map: &TensorMapArgument<BufferId>) -> Result<TensorMap> {
        if !self.target().features().tma {
            return Ok(TensorMap::UNUSED);
        }
        let range =
            BufferArgument { buffer: map.buffer, bytes: map.bytes.clone(), access: Access::Read };
        TensorMap::tiled(self.modules.context().driver(), self.memory.address(&range), &map.layout)
    }

    fn launch(
        &self,
        operation: &Operation,
        entry: &Entry<'_>,
        arguments: KernelArguments,
    ) -> Result<Command, BuildError> {
        let operation = operation.name().to_owned();
        let function = self
            .modules
            .function(entry.image.clone(), entry.name)
            .map_err(|cause| BuildError::Cold { operation: operation.clone(), cause })?;
        let Entry { geometry, attributes, .. } = *entry;
        let launch = BoundLaunch { function, geometry, arguments, attributes };
        match launch.kernel().check() {
            Ok(()) => Ok(Command::Launch(launch)),
            Err(cause) => Err(BuildError::Operation { operation, cause }),
        }
    }
}

/// Argument values, with the addresses of ranges and of consecutive tables, and tensor maps.
pub(super) fn arguments_at<B>(
    arguments: &[Argument<B>],
    address: impl Fn(&BufferArgument<B>) -> u64,
    mut table: impl FnMut() -> u64,
    tensor_map: impl Fn(&TensorMapArgument<B>) -> Result<TensorMap>,
) -> Result<KernelArguments> {
    arguments.iter().try_fold(KernelArguments::new(), |values, argument| {
        Ok(match argument {
            Argument::Buffer(range) => values.address(address(range)),
            Argument::Null => values.address(0),
            Argument::U32(value) => values.u32(*value),
            Argument::U64(value) => values.u64(*value),
            Argument::F32(bits) => values.u32(*bits),
            Argument::Value(value) => values.value_bytes(value.bytes(), value.align()),
            Argument::Table(_) => values.address(table()),
            Argument::TensorMap(None) => values.tensor_map(TensorMap::UNUSED),
            Argument::TensorMap(Some(map)) => values.tensor_map(tensor_map(map)?),
        })
    })
}

pub(super) fn count_tables(operation: &Operation) -> usize {
    let tables = |argument: &&Argument<BufferId>| matches!(argument, Argument::Table(_));
    operation.arguments().iter().filter(tables).count()
}
