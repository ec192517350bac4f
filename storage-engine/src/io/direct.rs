//! A file opened a second time, to be read past the page cache.

use std::cell::RefCell;
use std::future::Future;

enum State<T> {
    /// Nobody has asked for it yet, or it could not be opened for the moment.
    Closed,
    Opening,
    Open(T),
    /// The file system cannot.
    Refused,
}

/// The file `T`, opened when it is first asked for.
pub(super) struct Direct<T>(RefCell<State<T>>);

impl<T> Default for Direct<T> {
    fn default() -> Self {
        Self(RefCell::new(State::Closed))
    }
}

/// Ends an opening that was dropped half done.
struct Unfinished<'d, T>(&'d Direct<T>);

impl<T> Drop for Unfinished<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.0.borrow_mut();
        if matches!(*state, State::Opening) {
            *state = State::Closed;
        }
    }
}

impl<T: Clone> Direct<T> {
    /// The file, opened by `open` where nobody has done so. None where that is refused, or fails for now, and while another is
    /// about it: who asks then reads through the page cache, so that many reads at once do not open it many times.
    pub async fn get(&self, open: impl Future<Output = std::io::Result<T>>) -> Option<T> {
        match &*self.0.borrow() {
            State::Open(file) => return Some(file.clone()),
            State::Opening | State::Refused => return None,
            State::Closed => {}
        }
        *self.0.borrow_mut() = State::Opening;
        let unfinished = Unfinished(self);
        let opened = open.await;
        let state = match &opened {
            Ok(file) => State::Open(file.clone()),
            Err(error) if passes(error) => State::Closed,
            Err(_) => State::Refused,
        };
        *self.0.borrow_mut() = state;
        drop(unfinished);
        opened.ok()
    }

    /// Notes that the file system cannot, as reading has shown.
    pub fn refuse(&self) {
        *self.0.borrow_mut() = State::Refused;
    }
}

/// Whether an error says nothing about the file: there are too many descriptors, or there is too little memory.
fn passes(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN | libc::EINTR))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, ready};

    use futures_lite::future::{block_on, poll_once};

    use super::*;

    #[test]
    fn a_file_is_opened_once() {
        let (direct, opened) = (Direct::<u8>::default(), Cell::new(0));
        let begun = Cell::new(false);
        let open = || async {
            opened.set(opened.get() + 1);
            futures_lite::future::poll_fn(|_| {
                if begun.replace(true) { std::task::Poll::Ready(Ok(7)) } else { std::task::Poll::Pending }
            })
            .await
        };
        let mut first = Box::pin(direct.get(open()));
        assert_eq!(block_on(poll_once(&mut first)), None);
        assert_eq!(block_on(direct.get(open())), None, "read through the page cache meanwhile");
        assert_eq!(block_on(first), Some(7));
        assert_eq!((block_on(direct.get(open())), opened.get()), (Some(7), 1));
    }

    /// One lack of descriptors once turned such reads off for as long as the file was open.
    #[test]
    fn only_refusals_are_remembered() {
        let failed = |number| ready(Err::<u8, _>(std::io::Error::from_raw_os_error(number)));
        let direct = Direct::default();
        assert_eq!(block_on(direct.get(failed(libc::EMFILE))), None);
        // One that is dropped half done is none.
        assert_eq!(block_on(poll_once(direct.get(pending()))), None);
        assert_eq!(block_on(direct.get(ready(Ok(7)))), Some(7));
        let direct = Direct::default();
        assert_eq!(block_on(direct.get(failed(libc::EINVAL))), None);
        assert_eq!(block_on(direct.get(ready(Ok(7)))), None);
    }
}
