use super::*;

fn on_an_executor<F: Future<Output = ()> + 'static>(run: impl FnOnce(PathBuf) -> F) {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR").to_owned() + "/target").unwrap();
    let path = dir.path().to_owned();
    std::fs::write(path.join("probe"), [1u8; 4096]).unwrap();
    let future = run(path);
    glommio::LocalExecutorBuilder::new(glommio::Placement::Unbound)
        .io_memory(1 << 20)
        .make()
        .unwrap()
        .run(future);
}

#[test]
fn an_empty_probe_file_is_refused() {
    on_an_executor(|dir| async move {
        std::fs::write(dir.join("empty"), []).unwrap();
        let error = RealDisk::new(&dir.join("empty")).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    });
}

#[test]
fn unaligned_reads_bring_exactly_the_bytes_asked_for_and_fewer_at_the_end() {
    on_an_executor(|dir| async move {
        let disk = RealDisk::new(&dir.join("probe")).await.unwrap();
        let file = disk.open(&dir.join("a"), OpenMode::Create).await.unwrap();
        let mut buffer = file.allocate(8192);
        for (index, byte) in buffer.iter_mut().enumerate() {
            *byte = (index % 251) as u8;
        }
        file.write_at(Rc::new(buffer), 0).await.unwrap();
        file.truncate(5000).await.unwrap();
        file.sync_data().await.unwrap();
        let expected = |range: std::ops::Range<usize>| -> Vec<u8> {
            range.map(|index| (index % 251) as u8).collect()
        };
        assert_eq!(
            &*file.read_at(4090, 20).await.unwrap(),
            &expected(4090..4110)[..]
        );
        assert_eq!(
            &*file.read_at(4990, 100).await.unwrap(),
            &expected(4990..5000)[..]
        );
        assert!(file.read_at(5000, 10).await.unwrap().is_empty());
        assert!(file.read_at(50_000, 10).await.unwrap().is_empty());
        file.preallocate(100_000).await.unwrap();
        assert_eq!(file.size().await.unwrap(), 100_000);
    });
}

#[test]
fn a_shared_file_is_read_by_another_executor() {
    on_an_executor(|dir| async move {
        let disk = RealDisk::new(&dir.join("probe")).await.unwrap();
        let file = disk
            .open(&dir.join("probe"), OpenMode::Existing)
            .await
            .unwrap();
        let shared = file.share().unwrap();
        drop(file);
        let read = std::thread::spawn(move || {
            glommio::LocalExecutorBuilder::new(glommio::Placement::Unbound)
                .io_memory(1 << 20)
                .make()
                .unwrap()
                .run(async move {
                    let file = RealFile::from_shared(&shared).unwrap();
                    file.read_at(10, 3).await.unwrap().to_vec()
                })
        })
        .join()
        .unwrap();
        assert_eq!(read, [1, 1, 1]);
    });
}

#[test]
fn writing_a_file_again_leaves_no_former_bytes() {
    on_an_executor(|dir| async move {
        let disk = RealDisk::new(&dir.join("probe")).await.unwrap();
        let path = dir.join("small");
        disk.write_file(&path, b"a longer text").await.unwrap();
        disk.write_file(&path, b"short").await.unwrap();
        disk.sync_dir(&dir).await.unwrap();
        assert_eq!(disk.read_file(&path).await.unwrap(), b"short");
        let files = disk.list_files(&dir).await.unwrap();
        assert!(files.contains(&("small".to_owned(), 5)));
    });
}
