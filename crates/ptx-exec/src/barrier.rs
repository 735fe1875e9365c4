//! The barriers of a block and the state of its warps.

use super::interpreter::Contributions;
use super::program::LANES;
use super::races::{Barrier, BlockRaces};

/// The number of barriers of a block.
pub(super) const BARRIERS: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Ready,
    /// Waits at a barrier for a number of threads; 0 means all.
    Waiting(u32, u32),
    /// Waits at the cluster barrier.
    WaitingForCluster,
    /// Waits at the grid barrier.
    WaitingForGrid,
    /// Waits for an mbarrier.
    Stalled,
    Done,
}

impl State {
    fn waits_at(self, id: u32) -> bool {
        matches!(self, Self::Waiting(at, _) if at == id)
    }
}

/// The warps of a block and its barriers.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Barriers {
    states: Vec<State>,
    /// The number of threads that have arrived at each barrier without waiting.
    arrived: [u32; BARRIERS as usize],
    /// The numbers of arrivals and waits of each warp at the cluster barrier.
    cluster: Vec<[u64; 2]>,
    /// The number of completed phases of the cluster barrier.
    opened: u64,
}

impl Barriers {
    /// Begins a block: all warps are ready.
    pub(super) fn start(&mut self, warps: usize) {
        self.states.clear();
        self.states.resize(warps, State::Ready);
        self.arrived = [0; BARRIERS as usize];
        self.cluster.clear();
        self.cluster.resize(warps, [0; 2]);
        self.opened = 0;
    }

    /// Whether the warp can continue.
    pub(super) fn is_ready(&self, warp: usize) -> bool {
        self.states[warp] == State::Ready
    }

    /// Whether all warps have ended.
    pub(super) fn all_done(&self) -> bool {
        self.states.iter().all(|&state| state == State::Done)
    }

    /// Marks a warp as ended.
    pub(super) fn end(&mut self, warp: usize) {
        self.states[warp] = State::Done;
    }

    /// Makes the warp wait for `count` threads; 0 means all.
    pub(super) fn wait(&mut self, warp: usize, id: u32, count: u32) {
        self.states[warp] = State::Waiting(id, count);
    }

    /// Makes the warp wait for an mbarrier.
    pub(super) fn stall(&mut self, warp: usize) {
        self.states[warp] = State::Stalled;
    }

    /// Makes the warp wait at the grid barrier.
    pub(super) fn wait_grid(&mut self, warp: usize) {
        self.states[warp] = State::WaitingForGrid;
    }

    /// Whether a warp waits at the grid barrier.
    pub(super) fn waits_for_grid(&self, warp: usize) -> bool {
        self.states[warp] == State::WaitingForGrid
    }

    /// Whether all warps that have not ended wait at the grid barrier.
    pub(super) fn has_grid_arrived(&self) -> bool {
        let arrived = |state: &State| matches!(state, State::WaitingForGrid | State::Done);
        self.states.iter().all(arrived)
    }

    /// Opens the grid barrier. Returns the warps that waited.
    pub(super) fn open_grid(&mut self) -> Vec<usize> {
        let waiting = (0..self.states.len()).filter(|&warp| self.waits_for_grid(warp));
        let waiting: Vec<_> = waiting.collect();
        waiting.iter().for_each(|&warp| self.states[warp] = State::Ready);
        waiting
    }

    /// Whether the warp waits for an mbarrier.
    pub(super) fn is_stalled(&self, warp: usize) -> bool {
        self.states[warp] == State::Stalled
    }

    /// Makes the warp ready.
    pub(super) fn resume(&mut self, warp: usize) {
        self.states[warp] = State::Ready;
    }

    /// The barrier at which a warp waits, and the number of threads that it waits for.
    pub(super) fn wait_of(&self, warp: usize) -> Option<(u32, u32)> {
        match self.states[warp] {
            State::Waiting(id, count) => Some((id, count)),
            _ => None,
        }
    }

    /// Records an arrival of a warp without waiting.
    pub(super) fn arrive(&mut self, id: u32) {
        self.arrived[id as usize] += LANES as u32;
    }

    /// Records an arrival of a warp at the cluster barrier. Returns the phase, or `None` if the
    /// warp has not waited since it last arrived.
    pub(super) fn arrive_cluster(&mut self, warp: usize) -> Option<u64> {
        let [arrived, waited] = &mut self.cluster[warp];
        let in_turn = arrived == waited;
        *arrived += u64::from(in_turn);
        in_turn.then_some(*arrived)
    }

    /// Makes a warp wait at the cluster barrier. Returns the phase and whether it is complete, or
    /// `None` if the warp has not arrived.
    pub(super) fn wait_cluster(&mut self, warp: usize) -> Option<(u64, bool)> {
        let [arrived, waited] = &mut self.cluster[warp];
        if arrived == waited {
            return None;
        }
        *waited += 1;
        let complete = self.opened >= *waited;
        if !complete {
            self.states[warp] = State::WaitingForCluster;
        }
        Some((*waited, complete))
    }

    /// Whether a warp waits at the cluster barrier.
    pub(super) fn waits_for_cluster(&self, warp: usize) -> bool {
        self.states[warp] == State::WaitingForCluster
    }

    /// Whether every warp that has not ended has arrived at the cluster barrier.
    pub(super) fn has_cluster_arrived(&self) -> bool {
        let mut warps = self.states.iter().zip(&self.cluster);
        warps.all(|(&state, [arrived, _])| state == State::Done || *arrived > self.opened)
    }

    /// Whether a warp has arrived at the cluster barrier since it last opened.
    pub(super) fn awaits_cluster(&self) -> bool {
        self.cluster.iter().any(|[arrived, _]| *arrived > self.opened)
    }

    /// Opens the cluster barrier. Returns the phase and the warps that waited.
    pub(super) fn open_cluster(&mut self) -> (u64, Vec<usize>) {
        self.opened += 1;
        let mut released = Vec::new();
        for (warp, state) in self.states.iter_mut().enumerate() {
            if *state == State::WaitingForCluster {
                *state = State::Ready;
                released.push(warp);
            }
        }
        (self.opened, released)
    }

    /// The first warp that waits.
    pub(super) fn first_waiting(&self) -> Option<usize> {
        self.states.iter().position(|state| matches!(state, State::Waiting(..)))
    }

    /// Releases the warps of complete barriers. Returns whether any barrier was complete.
    pub(super) fn release(
        &mut self,
        races: Option<&BlockRaces<'_>>,
        contributions: &mut Contributions,
    ) -> bool {
        let mut released = false;
        for id in (0..BARRIERS).filter(|&id| self.is_complete(id)).collect::<Vec<_>>() {
            released = true;
            self.arrived[id as usize] = 0;
            contributions.release(id);
            for (warp, state) in self.states.iter_mut().enumerate() {
                if state.waits_at(id) {
                    *state = State::Ready;
                    if let Some(races) = races {
                        races.release(Barrier::Block(id), warp);
                    }
                }
            }
            if let Some(races) = races {
                races.open(Barrier::Block(id));
            }
        }
        released
    }

    fn is_complete(&self, id: u32) -> bool {
        let waits = |state: &&State| state.waits_at(id);
        let Some(&State::Waiting(_, count)) = self.states.iter().find(waits) else {
            return false;
        };
        let waiting = self.states.iter().filter(waits).count() as u32;
        let live = self.states.iter().filter(|&&state| state != State::Done).count() as u32;
        if count == 0 {
            waiting == live
        } else {
            waiting * LANES as u32 + self.arrived[id as usize] >= count
        }
    }
}
