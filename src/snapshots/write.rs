//! Writing a snapshot.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use roaring::RoaringBitmap;
use shards::runtime::{Checkpoint, Runtime};

use super::s3::{SnapshotBucket, Upload};
use super::{FORMAT, HEAD, Head, snapshot_path, version};
use crate::archive::{ArchiveWriter, Compression, CopyError, PIECE_BYTES, Shared, aside};
use crate::control::ControlPlane;
use crate::control::plane::{log_folder, store_path};
use crate::control::storage::record::FinishedSet;
use crate::control::storage::refill::Refill;
use crate::control::storage::tasklog::TaskLog;
use crate::tasks::task::{Status, Task, TaskUid};

/// Files and names of one snapshot in the making.
#[derive(Clone, Debug)]
struct Places {
    /// The snapshot.
    target: PathBuf,
    /// The archive until it is complete.
    unfinished: PathBuf,
    /// The folder of what is copied before it goes into the archive.
    parts: PathBuf,
    /// The note of an upload that has begun: a process that was killed in the middle of it left its parts in the bucket.
    upload: PathBuf,
}

impl Places {
    fn of(plane: &ControlPlane) -> Self {
        let target = snapshot_path(&plane.config.snapshot_dir, &plane.config.root);
        let beside = |ending: &str| {
            let name = target.file_name().unwrap_or_default().to_string_lossy();
            target.with_file_name(format!(".{name}.{ending}"))
        };
        Self { unfinished: beside("unfinished"), parts: beside("parts"), upload: beside("upload"), target }
    }
}

/// A file that goes into the archive.
struct Source {
    name: String,
    path: PathBuf,
}

/// Writes the snapshot of the instance and puts it in the place of an earlier one: in its folder, or in a bucket. Only the task
/// worker calls this, with nothing left over from the batch before.
///
/// # Errors
/// The disk is full, a file could not be read or written, or the bucket does not take it; what was made is left for [`clean_up`].
pub async fn write(plane: &ControlPlane) -> Result<(), CopyError> {
    let places = Places::of(plane);
    match &plane.config.bucket {
        None => {
            archive(plane, &places, Compression::fast()).await?;
            let complete = places.clone();
            aside(&*plane.runtime, move || put_in_place(&complete)).await??;
        }
        Some(bucket) => bucket.unless_stopping(send(plane, bucket, &places)).await??,
    }
    remove_leftovers(plane, &places).await
}

/// Writes the archive and sends it to the bucket, which is asked first: one that takes nothing says so at once.
async fn send(plane: &ControlPlane, bucket: &SnapshotBucket, places: &Places) -> Result<(), CopyError> {
    plane.runtime.disk().create_dir_all(&places.parts).await?;
    if let Some(unfinished) = read_note(plane, places).await?
        && bucket.give_up(&unfinished).await
    {
        forget_upload(plane, places).await?;
    }
    let upload = bucket.begin(&places.target.file_name().unwrap_or_default().to_string_lossy()).await?;
    write_note(plane, places, &upload).await?;
    archive(plane, places, Compression::new(bucket.compression_level())).await?;
    bucket.send(&upload, &places.unfinished).await?;
    forget_upload(plane, places).await
}

/// Writes the archive of the instance.
async fn archive(plane: &ControlPlane, places: &Places, compression: Compression) -> Result<(), CopyError> {
    let (runtime, disk) = (&*plane.runtime, plane.runtime.disk());
    let date = plane.runtime.unix_time().as_secs();
    remove_leftovers(plane, places).await?;
    disk.create_dir_all(&places.parts).await?;
    plane.store.copy_to(&store_path(&places.parts)).await?;
    copy_waiting_tasks(plane, &log_folder(&places.parts)).await?;

    let (parts, root) = (places.parts.clone(), plane.config.root.clone());
    let state = plane.state();
    let folders: Vec<PathBuf> = state.indexes.values().map(|view| plane.indexes.folder(view)).collect();
    let unfinished = places.unfinished.clone();
    let begun = aside(runtime, move || begin((&unfinished, date, compression), &parts, &root, &folders)).await??;
    let (archive, sources) = begun;
    let archive = Shared::new(archive);
    for source in sources {
        copy_file(runtime, &archive, source).await?;
    }
    let path = places.unfinished.clone();
    archive.run(runtime, move |archive| finish(archive, &path)).await
}

/// Removes what an unfinished snapshot left behind.
///
/// # Errors
/// The disk failed.
pub async fn clean_up(plane: &ControlPlane) -> Result<(), CopyError> {
    let places = Places::of(plane);
    if let Some(bucket) = &plane.config.bucket
        && bucket.abandon().await
    {
        forget_upload(plane, &places).await?;
    }
    remove_leftovers(plane, &places).await
}

/// The upload that was under way when the process ended. A note that cannot be read is none: it was being written.
async fn read_note(plane: &ControlPlane, places: &Places) -> Result<Option<Upload>, CopyError> {
    let path = places.upload.clone();
    aside(&*plane.runtime, move || serde_json::from_str(&fs::read_to_string(path).ok()?).ok()).await
}

async fn write_note(plane: &ControlPlane, places: &Places, upload: &Upload) -> Result<(), CopyError> {
    let path = places.upload.clone();
    let text = serde_json::to_vec(upload).map_err(|error| CopyError::Failed(error.to_string()))?;
    let write = move || {
        let written = File::create(&path).and_then(|mut file| file.write_all(&text));
        written.map_err(|error| CopyError::of(&path, "writing", &error))
    };
    aside(&*plane.runtime, write).await?
}

/// Removes the note of an upload that has ended.
async fn forget_upload(plane: &ControlPlane, places: &Places) -> Result<(), CopyError> {
    let path = places.upload.clone();
    aside(&*plane.runtime, move || removed(fs::remove_file(&path), &path)).await?
}

/// What the removal of something comes to; it need not be there.
fn removed(result: io::Result<()>, path: &Path) -> Result<(), CopyError> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CopyError::of(path, "removing", &error)),
        _ => Ok(()),
    }
}

async fn remove_leftovers(plane: &ControlPlane, places: &Places) -> Result<(), CopyError> {
    let places = places.clone();
    aside(&*plane.runtime, move || {
        removed(fs::remove_dir_all(&places.parts), &places.parts)?;
        removed(fs::remove_file(&places.unfinished), &places.unfinished)
    })
    .await?
}

/// Writes the tasks that wait, with their payloads, into a log of its own. The snapshot's own tasks are being processed, so they
/// are not among them.
async fn copy_waiting_tasks(plane: &ControlPlane, folder: &Path) -> Result<(), CopyError> {
    let waiting = plane.queue.borrow().in_status(Status::Enqueued);
    let (log, _) = TaskLog::open(&plane.runtime, folder, &FinishedSet::default(), &RoaringBitmap::new()).await?;
    let mut refill = Refill::new(&log);
    let mut checkpoint = Checkpoint::default();
    for uid in waiting {
        checkpoint.tick(&*plane.runtime).await;
        let held = plane.queue.borrow().held(TaskUid(uid)).cloned();
        let Some(task) = held else { continue };
        let payload = match task.content.has_payload() {
            true => Some(Arc::unwrap_or_clone(plane.log.payload(task.uid).await?)),
            false => None,
        };
        refill.add(Task::clone(&task), payload).await?;
    }
    Ok(refill.finish().await?)
}

/// Begins the archive and lists what goes into it. Blocks.
fn begin(
    (unfinished, date, compression): (&Path, u64, Compression),
    parts: &Path,
    root: &Path,
    folders: &[PathBuf],
) -> Result<(Option<ArchiveWriter>, Vec<Source>), CopyError> {
    let failed = |error: io::Error| CopyError::of(unfinished, "writing", &error);
    let mut archive = ArchiveWriter::create_with(unfinished, date, compression).map_err(failed)?;
    let head = Head { format: FORMAT, version: version().into() };
    let head = serde_json::to_vec(&head).map_err(|error| CopyError::Failed(error.to_string()))?;
    archive.file(HEAD, &head).map_err(failed)?;
    archive.folder("indexes").map_err(failed)?;
    let mut sources = Vec::new();
    list_files(parts, parts, &mut sources)?;
    for folder in folders {
        list_files(root, folder, &mut sources)?;
    }
    Ok((Some(archive), sources))
}

/// Adds the files in a folder and below, named from `root` on, in order of their names.
///
/// What an index needs stays where it is while its snapshot is made, since no task changes it meanwhile. What it does not need
/// any more, a replaced graph's folder, goes at any time: between the listing of two folders, and before its files are copied.
fn list_files(root: &Path, folder: &Path, sources: &mut Vec<Source>) -> Result<(), CopyError> {
    let failed = |error: io::Error| CopyError::of(folder, "listing", &error);
    let entries: io::Result<Vec<_>> = fs::read_dir(folder).map_err(failed)?.collect();
    let mut paths: Vec<PathBuf> = entries.map_err(failed)?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            match list_files(root, &path, sources) {
                Err(_) if !path.exists() => {}
                listed => listed?,
            }
        } else {
            let name = path.strip_prefix(root).map_err(|error| CopyError::Failed(error.to_string()))?;
            sources.push(Source { name: name.to_string_lossy().into_owned(), path });
        }
    }
    Ok(())
}

/// Copies one file into the archive, piece by piece; none where it has gone (see [`list_files`]).
async fn copy_file(
    runtime: &dyn Runtime,
    archive: &Shared<Option<ArchiveWriter>>,
    source: Source,
) -> Result<(), CopyError> {
    let Source { name, path } = source;
    let opened = path.clone();
    let begun = archive.run(runtime, move |archive| {
        let failed = |error: io::Error| CopyError::of(&opened, "copying", &error);
        let file = match File::open(&opened) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let len = file.metadata().map_err(failed)?.len();
        open_archive(archive)?.begin(&name, len).map_err(failed)?;
        Ok(Some((file, len)))
    });
    let Some((mut file, mut left)) = begun.await? else { return Ok(()) };
    loop {
        let copied = path.clone();
        let piece = archive.run(runtime, move |archive| {
            let failed = |error: io::Error| CopyError::of(&copied, "copying", &error);
            let archive = open_archive(archive)?;
            let mut bytes = vec![0; left.min(PIECE_BYTES as u64) as usize];
            file.read_exact(&mut bytes).map_err(failed)?;
            archive.write(&bytes).map_err(failed)?;
            let left = left - bytes.len() as u64;
            if left == 0 {
                archive.end().map_err(failed)?;
            }
            Ok((file, left))
        });
        (file, left) = piece.await?;
        if left == 0 {
            return Ok(());
        }
    }
}

/// Completes the archive. Blocks.
fn finish(archive: &mut Option<ArchiveWriter>, path: &Path) -> Result<(), CopyError> {
    let failed = |error: io::Error| CopyError::of(path, "writing", &error);
    archive.take().ok_or_else(ended)?.finish().map_err(failed)
}

/// Gives the archive the snapshot's name. Blocks.
fn put_in_place(places: &Places) -> Result<(), CopyError> {
    let failed = |error: io::Error| CopyError::of(&places.target, "writing", &error);
    fs::set_permissions(&places.unfinished, fs::Permissions::from_mode(0o444)).map_err(failed)?;
    fs::rename(&places.unfinished, &places.target).map_err(failed)?;
    match places.target.parent() {
        Some(folder) => File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed),
        None => Ok(()),
    }
}

fn open_archive(archive: &mut Option<ArchiveWriter>) -> Result<&mut ArchiveWriter, CopyError> {
    archive.as_mut().ok_or_else(ended)
}

fn ended() -> CopyError {
    CopyError::Failed("the archive has ended".into())
}

#[cfg(test)]
mod tests {
    use futures_util::future::FutureExt;

    use super::*;
    use crate::archive::unpack;
    use crate::on_core::on_core;

    /// A graph that was replaced goes when its last reader does, and that may be in the middle of a snapshot.
    #[test]
    fn files_may_go_after_they_were_listed() {
        on_core(|runtime| {
            async move {
                let folder = tempfile::tempdir().unwrap();
                let (root, made, back) =
                    (folder.path().join("root"), folder.path().join("made"), folder.path().join("back"));
                fs::create_dir_all(root.join("index/old")).unwrap();
                for name in ["index/kept", "index/old/1", "index/old/2", "index/store"] {
                    // A test: nobody else waits for this executor.
                    #[allow(clippy::disallowed_methods)]
                    fs::write(root.join(name), name).unwrap();
                }
                let mut sources = Vec::new();
                list_files(&root, &root.join("index"), &mut sources).unwrap();
                assert_eq!(sources.len(), 4);
                fs::remove_dir_all(root.join("index/old")).unwrap();

                let archive = Shared::new(Some(ArchiveWriter::create(&made, 0).unwrap()));
                for source in sources {
                    copy_file(&*runtime, &archive, source).await.unwrap();
                }
                let finish = |archive: &mut Option<ArchiveWriter>| {
                    archive.take().unwrap().finish().unwrap();
                    Ok(())
                };
                archive.run(&*runtime, finish).await.unwrap();
                unpack(&made, &back).unwrap();
                for name in ["index/kept", "index/store"] {
                    assert_eq!(fs::read_to_string(back.join(name)).unwrap(), name);
                }
                assert!(!back.join("index/old").exists());
                // What an index must have is missed.
                assert!(list_files(&root, &root.join("other"), &mut Vec::new()).is_err());
            }
            .boxed_local()
        });
    }
}
