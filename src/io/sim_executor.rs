//! A single-threaded executor for simulations: which ready task runs next follows from a seed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::disk::{LocalTask, Spawn};
use super::sim_disk::SimRandom;

/// The number that stands for the future that is run to its end.
const MAIN: usize = usize::MAX;

/// Runs tasks one step at a time. No time passes in it, and nothing wakes it from outside.
pub struct SimExecutor {
    random: RefCell<SimRandom>,
    ready: Arc<Mutex<Vec<usize>>>,
    new_tasks: Rc<RefCell<Vec<LocalTask>>>,
    tasks: RefCell<BTreeMap<usize, LocalTask>>,
}

struct ReadyWaker {
    task: usize,
    ready: Arc<Mutex<Vec<usize>>>,
}

impl Wake for ReadyWaker {
    fn wake(self: Arc<Self>) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if !ready.contains(&self.task) {
            ready.push(self.task);
        }
    }
}

impl SimExecutor {
    pub fn new(seed: u64) -> Self {
        Self {
            random: RefCell::new(SimRandom::new(seed)),
            ready: Arc::default(),
            new_tasks: Rc::default(),
            tasks: RefCell::default(),
        }
    }

    /// What the simulated program spawns its tasks with.
    pub fn spawn(&self) -> Spawn {
        let new_tasks = self.new_tasks.clone();
        Rc::new(move |task| new_tasks.borrow_mut().push(task))
    }

    /// Runs until `future` is done; nothing where no task can go on before, as after a crash of
    /// the disk. The spawned tasks stay for the next call.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut main = pin!(future);
        self.waker(MAIN).wake();
        loop {
            self.adopt_new_tasks();
            let task = {
                let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
                if ready.is_empty() {
                    return None;
                }
                let chosen = self.random.borrow_mut().below(ready.len() as u64) as usize;
                ready.swap_remove(chosen)
            };
            let waker = self.waker(task);
            let mut context = Context::from_waker(&waker);
            if task == MAIN {
                if let Poll::Ready(output) = main.as_mut().poll(&mut context) {
                    return Some(output);
                }
                continue;
            }
            let future = self.tasks.borrow_mut().remove(&task);
            if let Some(mut future) = future
                && Pin::new(&mut future).poll(&mut context).is_pending()
            {
                self.tasks.borrow_mut().insert(task, future);
            }
        }
    }

    fn adopt_new_tasks(&self) {
        let new_tasks: Vec<LocalTask> = self.new_tasks.borrow_mut().drain(..).collect();
        for task in new_tasks {
            let number = self.free_number();
            self.tasks.borrow_mut().insert(number, task);
            self.waker(number).wake();
        }
    }

    fn free_number(&self) -> usize {
        let tasks = self.tasks.borrow();
        tasks.last_key_value().map_or(0, |(last, _)| last + 1)
    }

    fn waker(&self, task: usize) -> Waker {
        Waker::from(Arc::new(ReadyWaker {
            task,
            ready: self.ready.clone(),
        }))
    }
}

impl Drop for SimExecutor {
    /// Tasks that never began hold what spawned them.
    fn drop(&mut self) {
        let new_tasks = self.new_tasks.take();
        drop(new_tasks);
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::future::{pending, yield_now};

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_order_and_another_seed_another() {
        let order = |seed: u64| {
            let executor = SimExecutor::new(seed);
            let spawn = executor.spawn();
            let order = Rc::new(RefCell::new(Vec::new()));
            for task in 0..5 {
                let order = order.clone();
                spawn(Box::pin(async move {
                    for _ in 0..5 {
                        order.borrow_mut().push(task);
                        yield_now().await;
                    }
                }));
            }
            executor.run(async {
                while order.borrow().len() < 25 {
                    yield_now().await;
                }
            });
            order.take()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn a_future_that_nothing_can_wake_ends_the_run() {
        assert_eq!(SimExecutor::new(0).run(pending::<()>()), None);
        assert_eq!(SimExecutor::new(0).run(async { 7 }), Some(7));
    }
}
