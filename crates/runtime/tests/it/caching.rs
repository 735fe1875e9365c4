//! Programs for many shapes in one cache: they give the results of separate programs, share memory
//! safely, and are evicted by least recent use.

use std::sync::Arc;

use retrograph_driver_sim::{Config, Simulator};
use retrograph_runtime::program::{
    Bucket, Buckets, CacheError, CacheOptions, Cached, Described, ProgramCache, ShapeError,
};
use retrograph_runtime::{
    Bindings, BuildError, BuildOptions, ControlError, DeviceBuffer, ModuleCache, Pass, PassError,
    Policy, Slice, StepError, Stream,
};

use crate::device::{Device, device, device_of, driver_of, simulated};
use crate::failing_programs::{Bench, UNKNOWN};
use crate::support::with;

const LARGEST: usize = 256;

/// The handle that a caller keeps with a program: the slice of its control.
type Cache = ProgramCache<1, Slice<u32>>;
type Description = Result<Described<Slice<u32>>, PassError>;

/// A device, and memory for the results of every shape.
struct Bound {
    stream: Stream,
    out: DeviceBuffer<u32>,
}

impl Bound {
    fn new(device: &Device) -> Self {
        let out = DeviceBuffer::zeroed(&device.context, LARGEST).unwrap();
        Self { stream: device.stream.clone(), out }
    }

    /// A pass that takes its values through two transients to the first words of `out`.
    fn describe(&self, bucket: &Bucket<1>) -> Description {
        let len = bucket.size[0];
        let mut pass = Pass::new(format!("through {len}"));
        let values = pass.control_array("values", len);
        let [one, two] = ["one", "two"].map(|name| pass.transient(name, len));
        let out = pass.external("out", LARGEST);
        pass.copy(values, one)?;
        pass.copy(one, two)?;
        pass.copy(two, out.slice(0..len))?;
        let mut bindings = Bindings::new();
        bindings.bind(out, &self.out);
        Ok(Described { pass, bindings, handles: values })
    }

    fn get<'a>(&self, cache: &'a mut Cache, len: usize) -> Cached<'a, 1, Slice<u32>> {
        cache.get_or_build(&self.stream, [len], |bucket| self.describe(bucket)).unwrap()
    }

    /// One step for `len` values from `first` on, padded with zeros.
    fn step(&self, cache: &mut Cache, len: usize, first: u32, stream: &Stream) {
        let mut cached = self.get(cache, len);
        let mut values: Vec<u32> = (first..).take(len).collect();
        values.resize(len + cached.bucket().padding(0), 0);
        let mut controls = cached.pass().controls();
        let set: Result<(), ControlError> = controls.set_array(*cached.handles(), &values);
        set.unwrap();
        cached.step(stream, &controls).unwrap();
    }

    fn check(&self, len: usize, first: u32) {
        let held = self.out.download(&self.stream).unwrap();
        let expected: Vec<u32> = (first..).take(len).collect();
        assert_eq!(held[..len], expected);
    }
}

fn cache(device: &Device, budget_bytes: usize) -> Cache {
    cache_with(device, budget_bytes, Policy::Manual)
}

fn cache_with(device: &Device, budget_bytes: usize, policy: Policy) -> Cache {
    // A pass with controls needs the kernel that fetches them; these passes need no other kernel.
    let mut controlled = Pass::new("controlled");
    controlled.control::<u32>("value");
    let required = controlled.requirements();
    let modules = ModuleCache::new(&device.context).prewarm(&required, |_| ()).unwrap();
    let mut build = BuildOptions::default();
    build.policy = policy;
    let mut options = CacheOptions::default();
    options.budget_bytes = budget_bytes;
    options.build = build;
    ProgramCache::new(&modules, [Buckets::powers_of_two(LARGEST).unwrap()], options)
}

/// The bytes of a program of `size` and of its transients, apart.
fn bytes(size: usize) -> (usize, usize) {
    // The fetch count follows the controls.
    let control = ((4 * size).next_multiple_of(16) + 16).next_multiple_of(256);
    (control, 2 * (4 * size).next_multiple_of(256))
}

#[test]
fn shapes_of_one_bucket_share_a_program() {
    let device = device();
    let (bound, mut cache) = (Bound::new(&device), cache(&device, usize::MAX));
    for (at, len) in [5, 8, 7, 100, 6, 128, 1].into_iter().enumerate() {
        let first = 1000 * at as u32;
        bound.step(&mut cache, len, first, &device.stream);
        bound.check(len, first);
        assert_eq!(bound.get(&mut cache, len).bucket().size, [len.next_power_of_two()]);
    }
    let statistics = cache.statistics();
    assert_eq!((statistics.builds, statistics.hits, statistics.programs), (3, 11, 3));
    assert_eq!(statistics.evictions, 0);
}

#[test]
fn transients_of_all_programs_lie_in_the_arena_of_the_largest() {
    let device = device();
    let (bound, mut cache) = (Bound::new(&device), cache(&device, usize::MAX));
    let (mut own, sizes) = (0, [256, 128, 64, 16]);
    for size in sizes {
        bound.get(&mut cache, size);
        own += bytes(size).0;
        assert_eq!(cache.statistics().bytes, own + bytes(256).1);
    }
    // An earlier, smaller arena is kept by its program.
    let mut growing = self::cache(&device, usize::MAX);
    bound.get(&mut growing, 64);
    bound.get(&mut growing, 256);
    bound.get(&mut growing, 128);
    let expected =
        bytes(64).1 + bytes(256).1 + [64, 256, 128].map(|size| bytes(size).0).iter().sum::<usize>();
    assert_eq!(growing.statistics().bytes, expected);
    assert!(growing.evict_least_recent());
    assert_eq!(growing.statistics().bytes, expected - bytes(64).0 - bytes(64).1);
    while growing.evict_least_recent() {}
    assert_eq!((growing.statistics().bytes, growing.statistics().evictions), (0, 3));
}

#[test]
fn programs_that_share_memory_wait_for_each_other_on_any_streams() {
    for seed in 0..4 {
        let device = device_of(&simulated(with(Config::default(), |it| it.seed = seed)));
        let lengths = [200, 100, 250, 90];
        let streams = lengths.map(|_| Stream::new(&device.context).unwrap());
        let bounds = lengths.map(|_| Bound::new(&device));
        let mut cache = cache(&device, usize::MAX);
        // Both programs exist, so nothing waits for the device between the steps.
        bounds[0].get(&mut cache, 200);
        bounds[0].get(&mut cache, 100);
        for (at, len) in lengths.into_iter().enumerate() {
            let (bound, stream) = (&bounds[at], &streams[at]);
            let mut cached = bound.get(&mut cache, len);
            let out = cached.pass().buffers().last().unwrap().0;
            let mut bindings = Bindings::new();
            bindings.bind(Slice::new(out, LARGEST), &bound.out);
            cached.rebind(stream, &bindings).unwrap();
            bound.step(&mut cache, len, 1000 * at as u32, stream);
        }
        assert_eq!(cache.statistics().builds, 2);
        // Waiting for the last step waits for all steps, since each waits for the previous one.
        for (at, len) in lengths.into_iter().enumerate() {
            let held = bounds[at].out.download(&streams[lengths.len() - 1]).unwrap();
            assert!(held.iter().copied().take(len).eq((1000 * at as u32..).take(len)), "{at}");
        }
    }
}

#[test]
fn the_least_recently_used_program_is_evicted_first() {
    let device = device();
    let bound = Bound::new(&device);
    let (own, arena) = ([256, 128, 64].map(|size| bytes(size).0), bytes(256).1);
    let mut cache = cache(&device, own.iter().sum::<usize>() + arena);
    for len in [256, 128, 64, 256] {
        bound.step(&mut cache, len, 0, &device.stream);
    }
    assert_eq!((cache.statistics().builds, cache.statistics().evictions), (3, 0));
    // 128 has not been used for longest, and its step is still in flight.
    bound.step(&mut cache, 32, 500, &device.stream);
    assert_eq!((cache.statistics().builds, cache.statistics().evictions), (4, 1));
    for len in [256, 64, 32] {
        bound.get(&mut cache, len);
    }
    assert_eq!((cache.statistics().builds, cache.statistics().hits), (4, 4));
    bound.check(32, 500);
    bound.step(&mut cache, 128, 7, &device.stream);
    assert_eq!((cache.statistics().builds, cache.statistics().evictions), (5, 2));
    bound.check(128, 7);
}

#[test]
fn errors_keep_what_was_there() {
    let bench = Bench::new(0);
    let device = &bench.device;
    let bound = Bound::new(device);
    let budget = bytes(128).0 + bytes(64).0 + bytes(128).1;
    let mut cache = cache(device, budget);
    bound.step(&mut cache, 128, 0, &device.stream);
    let held = (cache.statistics(), bench.simulator.live());
    let stream = &device.stream;
    let mut refused = |len, describe: &dyn Fn(&Bucket<1>) -> Description| {
        let error = cache.get_or_build(stream, [len], describe).map(drop).unwrap_err();
        assert_eq!((cache.statistics(), bench.simulator.live()), held, "{error}");
        error
    };
    let error = refused(257, &|bucket| bound.describe(bucket));
    let cause = ShapeError::TooLarge { asked: 257, largest: 256 };
    assert!(matches!(error, CacheError::Shape { axis: 0, cause: found } if found == cause));
    let error = refused(64, &|_| {
        let mut pass = Pass::new("unequal");
        let (one, two) = (pass.external::<u32>("one", 1), pass.external::<u32>("two", 2));
        Err(pass.copy(one, two).unwrap_err())
    });
    assert!(matches!(error, CacheError::Describe { .. }), "{error}");
    let error = refused(256, &|bucket| bound.describe(bucket));
    let CacheError::Build { cause, .. } = error else { panic!("{error}") };
    let BuildError::OverBudget { needed, budget: told } = *cause else { panic!("{cause}") };
    assert_eq!((needed, told), (bytes(256).0 + bytes(256).1, budget));
    for call in ["cuMemAlloc_v2", "cuGraphInstantiateWithFlags", "cuMemHostAlloc"] {
        bench.simulator.fail(call, 1, UNKNOWN).unwrap();
        let error = refused(64, &|bucket| bound.describe(bucket));
        assert!(error.to_string().contains(call), "{error}");
    }
    bound.step(&mut cache, 64, 9, stream);
    bound.check(64, 9);
    assert_eq!((cache.statistics().builds, cache.statistics().evictions), (2, 0));
}

#[test]
fn a_program_that_was_given_up_is_built_again() {
    let simulator = Arc::new(Simulator::new(Config::default()).unwrap());
    let device = device_of(&driver_of(&simulator).unwrap());
    let bound = Bound::new(&device);
    let mut cache = cache_with(&device, usize::MAX, Policy::Eager);
    bound.step(&mut cache, 8, 1, &device.stream);
    simulator.fail("cuMemcpyDtoDAsync_v2", 2, UNKNOWN).unwrap();
    let mut cached = bound.get(&mut cache, 8);
    let mut controls = cached.pass().controls();
    controls.set_array(*cached.handles(), &[0; 8]).unwrap();
    assert!(matches!(cached.step(&device.stream, &controls), Err(StepError::Incomplete { .. })));
    assert!(cached.program().is_given_up());
    bound.step(&mut cache, 8, 5, &device.stream);
    bound.check(8, 5);
    let found = cache.statistics();
    assert_eq!((found.programs, found.builds, found.hits), (1, 2, 1));
}
