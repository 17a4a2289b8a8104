! SPDX-License-Identifier: Apache-2.0
!
! The frame writer in Fortran: <sluice/writer.h>, <sluice/ranks.h> and <sluice/mpi.h> say how each call is used. Compilers
! have formats of their own for modules, so that a program compiles this file with its own sources:
!
!   gfortran $(pkg-config --variable=fortran_module sluice) run.f90 $(pkg-config --libs sluice) -o run
!   mpif90 $(pkg-config --variable=fortran_module sluice) run.f90 $(pkg-config --libs sluice-mpi) -o run
!
! Texts end with c_null_char. The last dimension of an array of Fortran is the first of sluice and HDF5: u(nx, ny) is a frame of
! ny x nx. A flag is added to others with ior(). Calls return 0 or a negative error; sluice_message() has the sentence.
module sluice
  use, intrinsic :: iso_c_binding
  implicit none

  integer(c_int), parameter :: sluice_int8 = 1, sluice_uint8 = 2, sluice_int16 = 3, sluice_uint16 = 4, sluice_int32 = 5, &
    sluice_uint32 = 6, sluice_int64 = 7, sluice_uint64 = 8, sluice_float16 = 9, sluice_float32 = 10, sluice_float64 = 11, &
    sluice_complex64 = 13, sluice_complex128 = 14, sluice_bool = 15, sluice_string = 24
  integer(c_int), parameter :: sluice_writer_replace = 1, sluice_writer_append = 2, sluice_writer_durable = 4, &
    sluice_writer_only_hdf5 = 8, sluice_writer_node_files = 16
  integer(c_int), parameter :: sluice_series_drop = 1, sluice_series_continue_at = 2, sluice_series_fletcher32 = 4

  type, bind(c) :: sluice_attribute
    type(c_ptr) :: name = c_null_ptr, text = c_null_ptr, numbers = c_null_ptr, integers = c_null_ptr
    integer(c_size_t) :: count = 0
    type(c_ptr) :: texts = c_null_ptr
    integer(c_size_t) :: columns = 0
  end type

  type, bind(c) :: sluice_writer_options
    integer(c_size_t) :: size = 0 ! c_sizeof() of it
    integer(c_int) :: flags = 0, mode = 0
    integer(c_int64_t) :: memory_bytes = 0
    integer(c_size_t) :: threads = 0
    integer(c_int64_t) :: checkpoint_frames = 0
    integer(c_int) :: checkpoint_ms = 0
    type(c_ptr) :: attributes = c_null_ptr
    integer(c_size_t) :: attribute_count = 0
    integer(c_int) :: full_disk_ms = 600000, open_ms = 0
    type(c_ptr) :: upload_folder = c_null_ptr
    integer(c_int) :: upload_ms = 0
  end type

  type, bind(c) :: sluice_series_options
    integer(c_size_t) :: size = 0 ! c_sizeof() of it
    integer(c_int) :: type = 0, rank = 0
    integer(c_int64_t) :: shape(4) = 0, chunk(4) = 0, frames = 0
    integer(c_int) :: depth = 0
    type(c_ptr) :: codec = c_null_ptr
    integer(c_int) :: level = 0, shuffle = 0, precision = 0, flags = 0
    type(c_ptr) :: scalars = c_null_ptr
    integer(c_size_t) :: scalar_count = 0
    type(c_ptr) :: attributes = c_null_ptr
    integer(c_size_t) :: attribute_count = 0
    integer(c_int64_t) :: continue_at = 0
    type(c_ptr) :: dimensions = c_null_ptr
    integer(c_int64_t) :: chunk_frames = 0, string_bytes = 0
  end type

  type, bind(c) :: sluice_block
    integer(c_int64_t) :: start(4) = 0, count(4) = 0
  end type

  interface
    ! config: c_null_ptr.
    integer(c_int) function sluice_context_new(config, context) bind(c)
      import
      type(c_ptr), value :: config
      type(c_ptr), intent(out) :: context
    end function
    integer(c_int) function sluice_context_close(context) bind(c)
      import
      type(c_ptr), value :: context
    end function
    ! options, here and below: c_loc() of a target, or c_null_ptr.
    integer(c_int) function sluice_writer_open(context, path, options, writer) bind(c)
      import
      type(c_ptr), value :: context, options
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), intent(out) :: writer
    end function
    ! comm: MPI_Fint, comm%MPI_VAL of mpi_f08. In libsluice-mpi.
    integer(c_int) function sluice_writer_open_mpi_fortran(context, comm, path, options, writer) bind(c)
      import
      type(c_ptr), value :: context, options
      integer(c_int), value :: comm
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), intent(out) :: writer
    end function
    integer(c_int) function sluice_writer_flush(writer, timeout_ms) bind(c)
      import
      type(c_ptr), value :: writer
      integer(c_int), value :: timeout_ms
    end function
    integer(c_int) function sluice_writer_close(writer, timeout_ms) bind(c)
      import
      type(c_ptr), value :: writer
      integer(c_int), value :: timeout_ms
    end function
    subroutine sluice_writer_discard(writer) bind(c)
      import
      type(c_ptr), value :: writer
    end subroutine
    ! In long steps of a program that has begun MPI below MPI_THREAD_MULTIPLE.
    integer(c_int) function sluice_writer_progress(writer) bind(c)
      import
      type(c_ptr), value :: writer
    end function
    ! values: c_loc() of an array of that type.
    integer(c_int) function sluice_writer_add_coordinate(writer, name, type, count, values, attributes, &
      attribute_count) bind(c)
      import
      type(c_ptr), value :: writer, values, attributes
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: type
      integer(c_size_t), value :: count, attribute_count
    end function
    integer(c_int) function sluice_writer_attributes(writer, attributes, count) bind(c)
      import
      type(c_ptr), value :: writer
      type(sluice_attribute), intent(in) :: attributes(*)
      integer(c_size_t), value :: count
    end function
    integer(c_int) function sluice_series_add(writer, dataset, options, series) bind(c)
      import
      type(c_ptr), value :: writer
      character(kind=c_char), intent(in) :: dataset(*)
      type(sluice_series_options), intent(in) :: options
      type(c_ptr), intent(out) :: series
    end function
    integer(c_int) function sluice_series_add_block(writer, dataset, options, block, timeout_ms, series) bind(c)
      import
      type(c_ptr), value :: writer
      character(kind=c_char), intent(in) :: dataset(*)
      type(sluice_series_options), intent(in) :: options
      type(sluice_block), intent(in) :: block
      integer(c_int), value :: timeout_ms
      type(c_ptr), intent(out) :: series
    end function
    integer(c_int) function sluice_series_attributes(series, attributes, count) bind(c)
      import
      type(c_ptr), value :: series
      type(sluice_attribute), intent(in) :: attributes(*)
      integer(c_size_t), value :: count
    end function
    ! The frame for c_f_pointer().
    integer(c_int) function sluice_series_acquire(series, timeout_ms, frame) bind(c)
      import
      type(c_ptr), value :: series
      integer(c_int), value :: timeout_ms
      type(c_ptr), intent(out) :: frame
    end function
    ! scalars, here and below: c_loc() of an array of real(c_double), or c_null_ptr.
    integer(c_int) function sluice_series_submit(series, frame, scalars) bind(c)
      import
      type(c_ptr), value :: series, frame, scalars
    end function
    integer(c_int) function sluice_series_discard(series, frame) bind(c)
      import
      type(c_ptr), value :: series, frame
    end function
    ! array: c_loc() of a contiguous array, which is copied.
    integer(c_int) function sluice_series_push(series, array, scalars, timeout_ms) bind(c)
      import
      type(c_ptr), value :: series, array, scalars
      integer(c_int), value :: timeout_ms
    end function
    type(c_ptr) function sluice_last_message() bind(c)
      import
    end function
  end interface

contains
  ! The sentence of the last call of this thread that failed.
  function sluice_message() result(text)
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    integer :: i, n
    interface
      integer(c_size_t) function c_length(text) bind(c, name="strlen")
        import
        type(c_ptr), value :: text
      end function
    end interface

    n = int(c_length(sluice_last_message()))
    call c_f_pointer(sluice_last_message(), letters, [n])
    allocate (character(len=n) :: text)
    do i = 1, n
      text(i:i) = letters(i)
    end do
  end function
end module
