//! Own kernels that copy tiles by TMA, with the launch attributes of every strategy.

use std::sync::Arc;

use retrograph_driver::{Driver, Origin};
use retrograph_driver_sim::{Config, Simulator};
use retrograph_driver_sys::{CUgraphNode, CUlaunchAttributeID, CUlaunchAttributeValue, CUresult};
use retrograph_runtime::{
    AdmitError, Argument, Bindings, BuildError, CustomImage, CustomLaunch, DeviceBuffer, Error,
    LaunchAttributes, LaunchGeometry, ModuleCache, NodeKind, Pass, Policy, Program, Slice,
    TensorMapLayout, TensorMapSwizzle, TensorMapType,
};

use crate::support::device::{Device, device, device_of, simulated};
use crate::support::ptx::SCALE;
use crate::support::with;

/// Blocks of a launch. Each copies one box.
const BLOCKS: u32 = 4;

/// Each block copies the box at its number along the outermost dimension through shared memory, and
/// stores the size of its cluster, times 100, and its rank there. Then all blocks meet if `meeting`
/// is their number.
fn tile_ptx(rank: usize) -> String {
    let coordinates = ["%r3"; 4][..rank - 1].join(", ");
    let separator = if rank > 1 { ", " } else { "" };
    format!(
        "
.version 8.0
.target sm_90
.address_size 64

.visible .entry tile(
    .param .align 64 .b8 map[128],
    .param .u64 from,
    .param .u64 to,
    .param .u64 ranks,
    .param .u64 counter,
    .param .u32 outer,
    .param .u32 words,
    .param .u32 meeting
)
{{
    .reg .pred %p<2>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<5>;
    .shared .align 1024 .b8 tile[4096];
    .shared .align 8 .b64 full;

    griddepcontrol.wait;
    mov.b64                 %rd0, map;
    cvta.param.u64          %rd0, %rd0;
    ld.param.u64            %rd1, [to];
    cvta.to.global.u64      %rd1, %rd1;
    ld.param.u32            %r0, [outer];
    ld.param.u32            %r1, [words];
    mov.u32                 %r2, %ctaid.x;
    mul.lo.u32              %r0, %r0, %r2;
    mov.u32                 %r3, 0;
    mov.u32                 %r4, tile;
    mov.u32                 %r5, full;
    shl.b32                 %r6, %r1, 2;
    mov.u32                 %r7, %tid.x;
    setp.ne.u32             %p0, %r7, 0;
    @%p0 bra                READY;
    mbarrier.init.shared.b64 [%r5], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], %r6;
    cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes \
         [%r4], [%rd0, {{{coordinates}{separator}%r0}}], [%r5];
READY:
    bar.sync                0;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r5], 0;
    @!%p1 bra               WAIT;
    mov.u32                 %r8, %r7;
NEXT:
    setp.ge.u32             %p0, %r8, %r1;
    @%p0 bra                STORED;
    shl.b32                 %r9, %r8, 2;
    add.u32                 %r9, %r9, %r4;
    ld.shared.u32           %r10, [%r9];
    mad.lo.u32              %r11, %r2, %r1, %r8;
    mad.wide.u32            %rd2, %r11, 4, %rd1;
    st.global.u32           [%rd2], %r10;
    add.u32                 %r8, %r8, 32;
    bra                     NEXT;
STORED:
    setp.ne.u32             %p0, %r7, 0;
    @%p0 ret;
    ld.param.u64            %rd3, [ranks];
    cvta.to.global.u64      %rd3, %rd3;
    mad.wide.u32            %rd3, %r2, 4, %rd3;
    mov.u32                 %r8, %cluster_nctaid.x;
    mov.u32                 %r9, %cluster_ctarank;
    mad.lo.u32              %r8, %r8, 100, %r9;
    st.global.u32           [%rd3], %r8;
    ld.param.u64            %rd4, [counter];
    cvta.to.global.u64      %rd4, %rd4;
    ld.param.u32            %r10, [meeting];
    atom.global.add.u32     %r9, [%rd4], 1;
MEET:
    ld.acquire.gpu.global.u32 %r9, [%rd4];
    setp.lt.u32             %p0, %r9, %r10;
    @%p0 bra                MEET;
    ret;
}}
"
    )
}

/// A tensor of f32 with `rank` dimensions, in boxes that divide only the outermost one. Rows of a
/// box are as long as the span of the swizzle, so there is nothing between them in shared memory.
fn layout(rank: usize, swizzle: TensorMapSwizzle) -> TensorMapLayout {
    let row = swizzle.span().unwrap_or(32) as u32 / 4;
    let mut box_sizes = vec![row, 4, 2, 2, 2];
    box_sizes.truncate(rank);
    let mut sizes: Vec<u64> = box_sizes.iter().map(|&size| u64::from(size)).collect();
    let bytes_up_to = |at: usize| 4 * sizes[..at].iter().product::<u64>();
    let strides = (1..rank).map(bytes_up_to).collect();
    sizes[rank - 1] *= u64::from(BLOCKS);
    TensorMapLayout { dtype: TensorMapType::F32, sizes, strides, box_sizes, swizzle }
}

/// A pass that copies a tensor, box by box.
struct Tiles {
    pass: Pass,
    layout: TensorMapLayout,
    attributes: LaunchAttributes,
    from: Slice<u32>,
    to: Slice<u32>,
    ranks: Slice<u32>,
}

impl Tiles {
    fn new(layout: TensorMapLayout, attributes: LaunchAttributes) -> Self {
        let mut pass = Pass::new("tiles");
        let words: u32 = layout.box_sizes.iter().product();
        let len = (words * BLOCKS) as usize;
        let [from, to] = ["from", "to"].map(|name| pass.external(name, len));
        let ranks = pass.external("ranks", BLOCKS as usize);
        let (first, counter) = (pass.transient("first", len), pass.transient::<u32>("counter", 1));
        pass.copy(from, first).unwrap();
        pass.fill(counter, 0).unwrap();
        let rank = layout.sizes.len();
        let is_cooperative = attributes == LaunchAttributes::new().cooperative();
        // Both operands are tiles: the first launch reads a transient, the second external memory.
        for source in [first, from] {
            let arguments = vec![
                Argument::tensor_map(source, layout.clone()),
                Argument::read(source),
                Argument::write(to),
                Argument::write(ranks),
                Argument::update(counter),
                Argument::U32(layout.box_sizes[rank - 1]),
                Argument::U32(words),
                Argument::U32(if is_cooperative { BLOCKS } else { 0 }),
            ];
            let image = CustomImage::ptx("tile", tile_ptx(rank));
            let geometry = LaunchGeometry::linear(BLOCKS, 32);
            let mut launch = CustomLaunch::new(image, "tile", geometry, arguments);
            launch.attributes = attributes;
            // SAFETY: the kernel reads the tensor of the map, writes as many words as the tensor
            // has and a word for each block, and updates the counter.
            unsafe { pass.custom(launch) }.unwrap();
        }
        Self { pass, layout, attributes, from, to, ranks }
    }

    /// Steps with other memory each time; returns the boxes, and the clusters.
    fn check(&self, device: &Device, policy: Policy) {
        let cache = ModuleCache::new(&device.context);
        let modules = cache.prewarm(&self.pass.requirements(), |_| ()).unwrap();
        let ranks = DeviceBuffer::zeroed(&device.context, BLOCKS as usize).unwrap();
        let len = self.from.len();
        let bound = |first: u32| {
            let numbers: Vec<u32> = (first..).take(len).collect();
            let from = DeviceBuffer::from_slice(&device.stream, &numbers).unwrap();
            let to = DeviceBuffer::zeroed(&device.context, len).unwrap();
            let mut bindings = Bindings::new();
            bindings.bind(self.from, &from).bind(self.to, &to).bind(self.ranks, &ranks);
            (bindings, to)
        };
        let (bindings, to) = bound(1);
        let mut program =
            Program::build(&device.stream, &modules, &self.pass, &bindings, policy).unwrap();
        program.step(&device.stream, &self.pass.controls()).unwrap();
        assert_eq!(to.download(&device.stream).unwrap(), self.boxes(1), "{policy:?}");
        let blocks = if self.attributes == cluster() { [200, 201, 200, 201] } else { [100; 4] };
        assert_eq!(ranks.download(&device.stream).unwrap(), blocks, "{policy:?}");

        let (bindings, to) = bound(7000);
        program.rebind(&device.stream, &bindings).unwrap();
        program.step(&device.stream, &self.pass.controls()).unwrap();
        assert_eq!(to.download(&device.stream).unwrap(), self.boxes(7000), "{policy:?}");
        program.admit(&device.stream, &self.pass.controls()).unwrap();

        // SAFETY: the graph is not launched.
        let graph = unsafe { program.graph(&device.stream) }.unwrap();
        let mut kernels = graph.nodes().unwrap();
        kernels.retain(|&node| graph.kind(node).unwrap() == NodeKind::Kernel);
        assert_eq!(kernels.len(), 2);
        let of_nodes = [LaunchAttributes::new(), cluster(), LaunchAttributes::new().cooperative()];
        let expected = of_nodes.into_iter().find(|it| *it == self.attributes).unwrap_or_default();
        for node in kernels {
            assert_eq!(graph.launch_attributes(node).unwrap(), expected, "{policy:?}");
        }
    }

    /// The numbers from `first` on as the blocks find them in shared memory.
    fn boxes(&self, first: u32) -> Vec<u32> {
        let mask = match self.layout.swizzle {
            TensorMapSwizzle::None => 0,
            TensorMapSwizzle::Bytes32 => 1,
            TensorMapSwizzle::Bytes64 => 3,
            TensorMapSwizzle::Bytes128 => 7,
        };
        // Chunks of four words; bits of the number of their 128-byte row select the chunk.
        let found = |word: u32| ((word / 4) ^ ((word / 32) & mask)) * 4 + word % 4;
        let words: u32 = self.layout.box_sizes.iter().product();
        (0..self.from.len() as u32)
            .map(|at| first + at / words * words + found(at % words))
            .collect()
    }
}

fn cluster() -> LaunchAttributes {
    LaunchAttributes::new().cluster([2, 1, 1])
}

/// The device, if it has TMA and clusters.
fn hopper() -> Option<Device> {
    Some(device()).filter(|device| device.context.compute_capability() >= (9, 0))
}

#[test]
fn own_ptx_copies_tiles_of_every_rank_and_swizzle() {
    let Some(device) = hopper() else { return };
    for rank in 1..=5 {
        for swizzle in [
            TensorMapSwizzle::None,
            TensorMapSwizzle::Bytes32,
            TensorMapSwizzle::Bytes64,
            TensorMapSwizzle::Bytes128,
        ] {
            let tiles = Tiles::new(layout(rank, swizzle), LaunchAttributes::new());
            tiles.check(&device, Policy::Auto);
        }
    }
}

#[test]
fn own_ptx_has_its_attributes_with_every_strategy() {
    let Some(device) = hopper() else { return };
    let none = LaunchAttributes::new();
    // SAFETY: the kernel waits before it accesses memory.
    let early = unsafe { none.programmatic_stream_serialization() };
    for attributes in [none, cluster(), none.cooperative(), none.shared_carveout(50), early] {
        let tiles = Tiles::new(layout(2, TensorMapSwizzle::None), attributes);
        for policy in [Policy::Auto, Policy::Eager, Policy::Manual, Policy::Hybrid, Policy::Capture]
        {
            tiles.check(&device, policy);
        }
    }
}

/// The call of a driver that ignores the attributes of nodes.
unsafe extern "C" fn ignored(
    _node: CUgraphNode,
    _attribute: CUlaunchAttributeID,
    _value: *const CUlaunchAttributeValue,
) -> CUresult {
    CUresult::CUDA_SUCCESS
}

#[test]
fn admission_finds_nodes_without_the_attributes_of_their_operation() {
    let simulator = Arc::new(Simulator::new(Config::default()).unwrap());
    let mut table = *simulator.table();
    table.cuGraphKernelNodeSetAttribute = ignored;
    // SAFETY: the simulator implements the driver's functions and is kept as long as the driver;
    // the replaced function has no effect.
    let driver = unsafe { Driver::from_table(table, Origin::Simulated, Some(simulator)) }.unwrap();
    let device = device_of(&driver);
    for (attributes, is_admitted) in
        [(LaunchAttributes::new(), true), (LaunchAttributes::new().cooperative(), false)]
    {
        let tiles = Tiles::new(layout(2, TensorMapSwizzle::None), attributes);
        let modules =
            ModuleCache::new(&device.context).prewarm(&tiles.pass.requirements(), |_| ()).unwrap();
        let numbers = |len: usize| DeviceBuffer::<u32>::zeroed(&device.context, len).unwrap();
        let (from, to) = (numbers(tiles.from.len()), numbers(tiles.to.len()));
        let ranks = numbers(tiles.ranks.len());
        let mut bindings = Bindings::new();
        bindings.bind(tiles.from, &from).bind(tiles.to, &to).bind(tiles.ranks, &ranks);
        let policy = Policy::Manual;
        let mut program =
            Program::build(&device.stream, &modules, &tiles.pass, &bindings, policy).unwrap();
        match program.admit(&device.stream, &tiles.pass.controls()) {
            Ok(_) if is_admitted => {}
            Err(AdmitError::NodeDiffers { operation }) if !is_admitted => {
                assert_eq!(operation, "tile");
            }
            other => panic!("{attributes:?}: {other:?}"),
        }
    }
}

#[test]
fn attributes_and_layouts_that_cannot_be_are_refused_when_a_program_is_built() {
    let build = |device: &Device, launch: &dyn Fn(Slice<f32>) -> CustomLaunch, policy| {
        let mut pass = Pass::new("refused");
        let x = pass.external::<f32>("x", 64);
        // SAFETY: the kernel is never launched.
        unsafe { pass.custom(launch(x)) }.unwrap();
        let modules =
            ModuleCache::new(&device.context).prewarm(&pass.requirements(), |_| ()).unwrap();
        let memory = DeviceBuffer::zeroed(&device.context, 64).unwrap();
        let mut bindings = Bindings::new();
        bindings.bind(x, &memory);
        match Program::build(&device.stream, &modules, &pass, &bindings, policy).unwrap_err() {
            BuildError::Operation { operation, cause } if operation == "scale" => cause,
            error => panic!("{error}"),
        }
    };
    let launch = |arguments| {
        let image = CustomImage::ptx("scale", SCALE);
        CustomLaunch::new(image, "scale", LaunchGeometry::linear(2, 32), arguments)
    };
    let older = device_of(&simulated(with(Config::default(), |it| it.compute_capability = (8, 6))));
    let newer = device_of(&simulated(Config::default()));
    let in_clusters = |x| {
        let mut launch = launch(vec![Argument::update(x), Argument::U32(64), Argument::f32(2.0)]);
        launch.attributes = cluster();
        launch
    };
    let mapped = |x| {
        let mut tile = layout(2, TensorMapSwizzle::None);
        (tile.sizes[1], tile.strides) = (2, Vec::new());
        launch(vec![Argument::update(x), Argument::tensor_map(x, tile), Argument::f32(2.0)])
    };
    for policy in [Policy::Auto, Policy::Eager, Policy::Manual, Policy::Hybrid, Policy::Capture] {
        let error = build(&older, &in_clusters, policy);
        let expected = (9, 0);
        assert!(
            matches!(error, Error::AttributeNotOnDevice { required, .. } if required == expected),
            "{error}"
        );
        let error = build(&newer, &mapped, policy);
        assert!(matches!(error, Error::TensorMapDimensions { strides: 0, .. }), "{error}");
    }
}
