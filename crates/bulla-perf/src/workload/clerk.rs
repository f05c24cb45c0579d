//! A thread that speaks to queue managers for loads: they outlive nothing that they could borrow the program from.

use crate::error::{Error, Result};
use crate::host::{Host, Row};
use crate::run::meters::{Watched, number};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

type Job = Box<dyn FnOnce(&dyn Host) + Send>;

/// Where jobs are left.
#[derive(Clone, Debug)]
pub(crate) struct Clerk {
    jobs: Sender<Job>,
}

impl Clerk {
    /// Has a clerk for as long as `work` takes, and all copies of it live. Jobs are done in their order, one at a time.
    pub(crate) fn during<T>(host: &dyn Host, work: impl FnOnce(Clerk) -> T) -> T {
        let (jobs, queue) = channel::<Job>();
        std::thread::scope(|scope| {
            scope.spawn(move || queue.into_iter().for_each(|job| job(host)));
            work(Clerk { jobs })
        })
    }

    /// Has something done; what came of it comes when it is done.
    pub(crate) fn order<T: Send + 'static>(
        &self,
        job: impl FnOnce(&dyn Host) -> Result<T> + Send + 'static,
    ) -> Receiver<Result<T>> {
        let (done, outcome) = channel();
        let job: Job = Box::new(move |host| {
            // The asker may not wait for it any more.
            let _ = done.send(job(host));
        });
        // A clerk that is gone does not answer, which is what the receiver says.
        let _ = self.jobs.send(job);
        outcome
    }

    /// Has something done and waits for it.
    ///
    /// # Errors
    /// Those of the job.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&dyn Host) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.order(job).recv().unwrap_or_else(|_| Err(Error::Wrong("a thread of the load panicked".to_owned())))
    }

    /// The sum of a number in the status of channels, each at its sending end; of a pair (XQTIME), its first.
    ///
    /// # Errors
    /// [`Error::Manager`].
    pub(crate) fn channel_numbers(&self, ends: &[SendingEnd], keyword: &'static str) -> Result<u64> {
        let ends = ends.to_vec();
        self.ask(move |host| {
            let mut sum = 0;
            for end in &ends {
                let rows = host.display(&end.data, &format!("DISPLAY CHSTATUS('{}') {keyword}", end.channel))?;
                sum += rows.first().map_or(0, |row| first(row, keyword));
            }
            Ok(sum)
        })
    }

    /// The greatest of a number that a queue manager shows; of a pair (QTIME), of its first.
    ///
    /// # Errors
    /// [`Error::Manager`].
    pub(crate) fn greatest(&self, data: &Path, command: &'static str, keyword: &'static str) -> Result<u64> {
        let data = data.to_owned();
        self.ask(move |host| {
            let rows = host.display(&data, command)?;
            Ok(rows.iter().map(|row| first(row, keyword)).max().unwrap_or(0))
        })
    }
}

/// A number of a row; of a pair its first.
fn first(row: &Row, keyword: &str) -> u64 {
    match row.get(keyword).and_then(|value| value.as_array()) {
        Some(pair) => pair.first().and_then(serde_json::Value::as_u64).unwrap_or(0),
        None => number(row, keyword),
    }
}

/// The sending end of a channel.
#[derive(Clone, Debug)]
pub(crate) struct SendingEnd {
    /// The data directory of the queue manager.
    pub(crate) data: PathBuf,
    /// The channel.
    pub(crate) channel: String,
}

impl SendingEnd {
    /// That of a channel at a queue manager of our own.
    ///
    /// # Errors
    /// [`Error::Usage`]: it is none of our own.
    pub(crate) fn of(watched: &Watched, channel: &str) -> Result<SendingEnd> {
        let data = watched.data.clone().ok_or_else(|| Error::Usage("a queue manager that is not ours".to_owned()))?;
        Ok(SendingEnd { data, channel: channel.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Shows the same row whatever is asked.
    struct Shows(serde_json::Value);

    impl Host for Shows {
        fn program(&self) -> &Path {
            Path::new("bulla")
        }

        fn display(&self, _: &Path, _: &str) -> Result<Vec<Row>> {
            Ok(vec![self.0.as_object().unwrap().clone()])
        }

        fn command(&self, _: &Path, _: &str) -> Result<()> {
            Err(Error::Manager("no".into()))
        }
    }

    #[test]
    fn a_number_is_that_of_all_channels_and_of_a_pair_the_first() {
        let host = Shows(json!({"CHANNEL": "A", "SSLRKEYS": 4, "XQTIME": [7, 900]}));
        let end = SendingEnd { data: "x".into(), channel: "A".into() };
        Clerk::during(&host, |clerk| {
            assert_eq!(clerk.channel_numbers(&[end.clone(), end.clone()], "SSLRKEYS").unwrap(), 8);
            assert_eq!(clerk.channel_numbers(&[end], "XQTIME").unwrap(), 7);
            let refused = clerk.ask(|host| host.command(Path::new("x"), "y"));
            assert!(matches!(refused, Err(Error::Manager(_))));
        });
    }

    #[test]
    fn jobs_are_done_in_their_order() {
        let host = Shows(json!({}));
        let done = Clerk::during(&host, |clerk| {
            let orders: Vec<_> = (0..10).map(|number| clerk.order(move |_| Ok(number))).collect();
            orders.into_iter().map(|order| order.recv().unwrap().unwrap()).collect::<Vec<i32>>()
        });
        assert_eq!(done, (0..10).collect::<Vec<_>>());
    }
}
