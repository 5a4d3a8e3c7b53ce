// SPDX-License-Identifier: Apache-2.0
//! Record batches of Arrow, from structs of its C data interface as its specification has them.
use accel::*;
use std::ffi::{c_void, CString};
use std::os::raw::c_char;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI64, Ordering};

#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct ArrowArrayStream {
    get_schema: unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> i32,
    get_next: unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> i32,
    get_last_error: unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

/// Schemas, arrays and streams that are not released yet.
static LIVE: AtomicI64 = AtomicI64::new(0);

/// What a schema owns.
struct SchemaParts {
    texts: [CString; 2],
    children: Vec<*mut ArrowSchema>,
}

fn schema(format: &str, name: &str, children: Vec<ArrowSchema>) -> ArrowSchema {
    LIVE.fetch_add(1, Ordering::SeqCst);
    let texts = [CString::new(format).unwrap(), CString::new(name).unwrap()];
    let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
    let parts = Box::new(SchemaParts { texts, children });
    ArrowSchema {
        format: parts.texts[0].as_ptr(),
        name: parts.texts[1].as_ptr(),
        metadata: ptr::null(),
        flags: 2, // nulls are allowed
        n_children: parts.children.len() as i64,
        children: parts.children.as_ptr() as *mut _,
        dictionary: ptr::null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(parts).cast(),
    }
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    for index in 0..(*schema).n_children as usize {
        let mut child = Box::from_raw(*(*schema).children.add(index));
        if let Some(release) = child.release {
            release(&mut *child);
        }
    }
    drop(Box::from_raw((*schema).private_data.cast::<SchemaParts>()));
    (*schema).release = None;
    LIVE.fetch_sub(1, Ordering::SeqCst);
}

/// What an array owns.
struct ArrayParts {
    _memory: Vec<Vec<u64>>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    for index in 0..(*array).n_children as usize {
        let mut child = Box::from_raw(*(*array).children.add(index));
        if let Some(release) = child.release {
            release(&mut *child);
        }
    }
    drop(Box::from_raw((*array).private_data.cast::<ArrayParts>()));
    (*array).release = None;
    LIVE.fetch_sub(1, Ordering::SeqCst);
}

/// The first buffer says which elements are there; an empty one: all are.
fn array(length: i64, null_count: i64, memory: Vec<Vec<u64>>, children: Vec<ArrowArray>) -> ArrowArray {
    LIVE.fetch_add(1, Ordering::SeqCst);
    let address = |words: &Vec<u64>| if words.is_empty() { ptr::null() } else { words.as_ptr().cast() };
    let parts = Box::new(ArrayParts {
        buffers: memory.iter().map(address).collect(),
        children: children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect(),
        _memory: memory,
    });
    ArrowArray {
        length,
        null_count,
        offset: 0,
        n_buffers: parts.buffers.len() as i64,
        n_children: parts.children.len() as i64,
        buffers: parts.buffers.as_ptr(),
        children: parts.children.as_ptr() as *mut _,
        dictionary: ptr::null_mut(),
        release: Some(release_array),
        private_data: Box::into_raw(parts).cast(),
    }
}

fn table_schema() -> ArrowSchema {
    schema("+s", "", vec![schema("l", "id", vec![]), schema("g", "x", vec![])])
}

/// Rows {id: first + i, x: 0.5 * i}; the x of row 1 is null where that is asked for.
fn table(first: u64, rows: u64, with_null: bool) -> ArrowArray {
    let ids = array(rows as i64, 0, vec![vec![], (first..first + rows).collect()], vec![]);
    let numbers: Vec<u64> = (0..rows).map(|i| (0.5 * i as f64).to_bits()).collect();
    let there = if with_null { vec![!2u64] } else { vec![] };
    let numbers = array(rows as i64, with_null.into(), vec![there, numbers], vec![]);
    array(rows as i64, 0, vec![vec![]], vec![ids, numbers])
}

fn place<T>(of: &mut T) -> NonNull<c_void> {
    NonNull::from(of).cast()
}

fn json(dataset: &Dataset, index: i64) -> String {
    dataset.item(index).unwrap().to_json().unwrap()
}

/// A stream that gives a number of batches with three rows each.
struct Batches {
    left: u64,
}

unsafe extern "C" fn stream_schema(_: *mut ArrowArrayStream, out: *mut ArrowSchema) -> i32 {
    out.write(table_schema());
    0
}

unsafe extern "C" fn stream_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> i32 {
    let batches = &mut *(*stream).private_data.cast::<Batches>();
    if batches.left == 0 {
        // The end is an array that was released.
        let mut end = table(0, 0, false);
        release_array(&mut end);
        out.write(end);
    } else {
        batches.left -= 1;
        out.write(table(10 * batches.left, 3, false));
    }
    0
}

unsafe extern "C" fn stream_error(_: *mut ArrowArrayStream) -> *const c_char {
    ptr::null()
}

unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    drop(Box::from_raw((*stream).private_data.cast::<Batches>()));
    (*stream).release = None;
    LIVE.fetch_sub(1, Ordering::SeqCst);
}

/// One test, because it counts what was released.
#[test]
fn batches_of_arrow_are_datasets() {
    let (mut of_all, mut all) = (table_schema(), table(7, 3, false));
    let rows = unsafe { Dataset::arrow(place(&mut of_all), place(&mut all), None) }.unwrap();
    assert_eq!(
        (rows.len(), json(&rows, 0), json(&rows, 2)),
        (3, r#"{"id":7,"x":0.0}"#.into(), r#"{"id":9,"x":1.0}"#.into())
    );
    assert!(of_all.release.is_none() && all.release.is_none(), "both are consumed");
    let mut loader = DataLoader::new(&rows, DataLoaderOptions::new().batch_size(2)).unwrap();
    assert_eq!(loader.next().unwrap().unwrap().to_json().unwrap(), r#"{"id":[7,8],"x":[0.0,0.5]}"#);
    drop((loader, rows));
    assert_eq!(LIVE.load(Ordering::SeqCst), 0);

    // A null is an error, or a number of the program.
    let (mut of_gaps, mut gaps) = (table_schema(), table(0, 3, true));
    let error = unsafe { Dataset::arrow(place(&mut of_gaps), place(&mut gaps), None) }.err().unwrap();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
    let (mut of_gaps, mut gaps) = (table_schema(), table(0, 3, true));
    let filled = unsafe { Dataset::arrow(place(&mut of_gaps), place(&mut gaps), Some(-1.0)) }.unwrap();
    assert_eq!(json(&filled, 1), r#"{"id":1,"x":-1.0}"#);
    drop(filled);
    assert_eq!(LIVE.load(Ordering::SeqCst), 0);

    LIVE.fetch_add(1, Ordering::SeqCst);
    let mut stream = ArrowArrayStream {
        get_schema: stream_schema,
        get_next: stream_next,
        get_last_error: stream_error,
        release: Some(release_stream),
        private_data: Box::into_raw(Box::new(Batches { left: 2 })).cast(),
    };
    let rows = unsafe { Dataset::arrow_stream(place(&mut stream), None) }.unwrap();
    assert_eq!(
        (rows.len(), json(&rows, 0), json(&rows, 4)),
        (6, r#"{"id":10,"x":0.0}"#.into(), r#"{"id":1,"x":0.5}"#.into())
    );
    drop(rows);
    assert_eq!(LIVE.load(Ordering::SeqCst), 0);

    // A struct that was released is refused.
    let (mut of_all, mut all) = (table_schema(), table(0, 1, false));
    unsafe { release_schema(&mut of_all) };
    let error = unsafe { Dataset::arrow(place(&mut of_all), place(&mut all), None) }.err().unwrap();
    assert!(error.message().contains("released already"), "{error:?}");
    let error = unsafe { Dataset::arrow_stream(place(&mut stream), Some(0.0)) }.err().unwrap();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
    assert_eq!(LIVE.load(Ordering::SeqCst), 0);
}
