//! Dedicated threads for functions, so that one that does not end blocks nobody else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_channel::oneshot;
use shards::error::UserError;
use shards::runtime::{Runtime, UntrustedError, Watch};

use super::failed;

/// How long to wait before a full queue is tried again.
const QUEUE_PAUSE: Duration = Duration::from_millis(20);

/// Why a function gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionError {
    /// The function is at fault.
    #[error(transparent)]
    User(#[from] UserError),
    /// It was not run, since too many earlier ones have not ended here. Another instance may run it.
    #[error("{}", .0.message)]
    NotRun(UserError),
}

/// Runs a job that compiles or runs a function, and gives back its result. While the queue of the threads is full, it waits.
///
/// # Errors
/// Those of the job; `edit_documents_by_function_error` when one step of it takes too long, and as
/// [`FunctionError::NotRun`] when so many functions have not ended that no other is run; `internal` when the job panicked.
pub async fn apart<T, F>(runtime: &dyn Runtime, job: F) -> Result<T, FunctionError>
where
    T: Send + 'static,
    F: FnOnce(&Arc<Watch>) -> Result<T, UserError> + Send + 'static,
{
    let (done, result) = oneshot::channel();
    // A refused job comes back through this place.
    let place = Arc::new(Mutex::new(Some((job, done))));
    loop {
        let taken = place.clone();
        let run = move |watch: &Arc<Watch>| {
            let job = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some((job, done)) = job {
                // Nobody listens any more when the server stops or the task is canceled meanwhile.
                let _ = done.send(job(watch));
            }
        };
        match runtime.untrusted_thread(Box::new(run)).await {
            Ok(()) => {
                let result = result.await.unwrap_or_else(|_| Err(internal("a thread ended without a result".into())));
                return Ok(result?);
            }
            Err(UntrustedError::Full) => runtime.sleep(QUEUE_PAUSE).await,
            Err(error @ UntrustedError::TooLong(_)) => {
                return Err(failed(format!("The function takes too long: {error}.")).into());
            }
            Err(error @ UntrustedError::TooManyLost(_)) => {
                return Err(FunctionError::NotRun(failed(format!("Functions cannot be run: {error}."))));
            }
            Err(error) => return Err(internal(format!("The function was not run: {error}.")).into()),
        }
    }
}

fn internal(message: String) -> UserError {
    UserError::new("internal", message)
}

#[cfg(test)]
mod tests {
    use futures_util::future::{Either, FutureExt, join_all, select};
    use serde_json::Map;

    use super::*;
    use crate::functions::{Edit, EditFunction};
    use crate::on_core::on_core;

    async fn run(runtime: &dyn Runtime, source: &'static str) -> Result<Edit, FunctionError> {
        let job = move |watch: &Arc<Watch>| {
            let watch = watch.clone();
            EditFunction::compile(source, None, move || watch.is_unwanted())?.run(&Map::new())
        };
        apart(runtime, job).await
    }

    /// Within such a call the engine asks nobody whether to go on. Two of them, even canceled ones, once took the two threads
    /// that collectors of figures, long bodies and dumps wait for. These end by themselves after some seconds.
    #[test]
    fn native_loops_that_nobody_wants_hold_up_nobody() {
        const LONG: &str = "Array.prototype.join.call({length: 30000000}, '')";
        on_core(|runtime| {
            async move {
                let began = runtime.now();
                let both = join_all([run(&*runtime, LONG), run(&*runtime, LONG)]);
                let left = select(both, runtime.sleep(Duration::from_millis(300))).await;
                assert!(matches!(left, Either::Right(_)), "longer ones are needed");
                drop(left);
                let beside = run(&*runtime, "doc.a = 1").await;
                assert!(matches!(beside, Ok(Edit::Replace(_))), "{beside:?}");
                assert_eq!(runtime.side_thread(Box::new(|| ())).await, Ok(()));
                assert!(runtime.now().since(began) < Duration::from_secs(20));
            }
            .boxed_local()
        });
    }

    #[test]
    fn results_and_errors_come_back() {
        on_core(|runtime| {
            async move {
                assert_eq!(run(&*runtime, "doc = null").await, Ok(Edit::Delete));
                let code = |error| match error {
                    FunctionError::User(error) | FunctionError::NotRun(error) => error.code,
                };
                assert_eq!(run(&*runtime, "for (;;) {}").await.map_err(code), Err("edit_documents_by_function_error"));
                assert_eq!(run(&*runtime, "}").await.map_err(code), Err("bad_request"));
                let panicking = apart(&*runtime, |_| -> Result<(), UserError> { panic!("broken") }).await;
                assert_eq!(panicking.map_err(code), Err("internal"));
            }
            .boxed_local()
        });
    }
}
