//! A notice that a rank waits for others at the start.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use retrograph_finetune::Coordinator;
use retrograph_runtime::Ranks;

use super::Placement;

/// Time for which a rank waits before it prints the notice.
pub(super) const QUIET: Duration = Duration::from_secs(5);

/// Calls `join`, and `say` if that takes longer than `quiet`.
pub(super) fn during<T>(quiet: Duration, say: impl FnOnce() + Send, join: impl FnOnce() -> T) -> T {
    let (done, waits) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if waits.recv_timeout(quiet) == Err(RecvTimeoutError::Timeout) {
                say();
            }
        });
        // Also dropped after a panic; the thread would otherwise wait.
        let _done = done;
        join()
    })
}

/// Returns the notice that the rank of `placement` waits, for at most `limit`. Only the coordinator
/// knows which ranks are missing.
pub(super) fn notice(
    placement: &Placement,
    coordinator: Option<&Coordinator>,
    limit: Duration,
) -> String {
    let Placement { ranks: Ranks { rank, world_size: count }, address, listen, .. } = placement;
    let missing = coordinator.map(Coordinator::missing).unwrap_or_default();
    let place = if coordinator.is_some() { listen } else { address };
    let missing = missing.first().map_or(String::new(), |first| {
        format!(" ({} missing, such as rank {first})", missing.len())
    });
    let seconds = limit.as_secs();
    format!(
        "rank {rank} of {count} ranks waits at {place} for the others{missing}, for at most \
         {seconds} s"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use retrograph_finetune::GroupOptions;

    use super::*;

    #[test]
    fn only_a_long_wait_is_announced() {
        let (said, heard) = mpsc::channel();
        let joined = during(Duration::ZERO, move || said.send(7).unwrap(), || heard.recv());
        assert_eq!(joined, Ok(7));
        let announced = || panic!("it has not waited");
        assert_eq!(during(Duration::from_secs(600), announced, || 8), 8);
    }

    #[test]
    fn the_notice_names_the_missing_ranks_if_they_are_known() {
        let placement = Placement::example();
        let limit = Duration::from_secs(300);
        assert_eq!(
            notice(&placement, None, limit),
            "rank 0 of 3 ranks waits at node7:4000 for the others, for at most 300 s"
        );
        let coordinator = Coordinator::listen("127.0.0.1:0", 3, GroupOptions::default()).unwrap();
        assert_eq!(
            notice(&placement, Some(&coordinator), limit),
            "rank 0 of 3 ranks waits at 0.0.0.0:4000 for the others (3 missing, such as rank 0), \
             for at most 300 s"
        );
    }
}
