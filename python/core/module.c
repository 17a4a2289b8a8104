/* SPDX-License-Identifier: Apache-2.0 */
/* The extension sluice._core: its types, its functions, and what the package gives it. */
#include "core.h"

static PyObject *setup(PyObject *module, PyObject *args)
{
	struct hooks given;
	unsigned long main_thread;

	/* The threads and the hooks are of one interpreter. */
	if (PyInterpreterState_GetID(PyInterpreterState_Get())) {
		PyErr_SetString(PyExc_ImportError, "sluice works in the main interpreter alone");
		return NULL;
	}
	if (!PyArg_ParseTuple(args, "OOOOOOk", &given.memory, &given.queue, &given.watch,
	                      &given.adopt, &given.tick, &given.operation, &main_thread))
		return NULL;
	/* For as long as the process: operations end at any time. */
	Py_INCREF(args);
	hooks = given;
	call_set_main(main_thread);
	reads_reset();
	Py_RETURN_NONE;
}

static PyObject *uri_name(PyObject *module, PyObject *uri)
{
	char text[4096];
	PyObject *path;
	int rc;

	if (!PyUnicode_FSConverter(uri, &path))
		return NULL;
	rc = sluice_uri_name(PyBytes_AsString(path), text, sizeof(text));
	Py_DECREF(path);
	return rc < 0 ? raise_last(rc) : PyUnicode_DecodeFSDefault(text);
}

/* split_array(name): the name of the file, and that of a dataset in it or None. */
static PyObject *split_array(PyObject *module, PyObject *name)
{
	PyObject *path, *found;
	const char *text;
	size_t n;

	if (!PyUnicode_FSConverter(name, &path))
		return NULL;
	text = PyBytes_AsString(path);
	Py_BEGIN_ALLOW_THREADS n = sluice_array_split(text);
	Py_END_ALLOW_THREADS found =
		n ? Py_BuildValue("NN", PyUnicode_DecodeFSDefaultAndSize(text, (Py_ssize_t)n),
	                          PyUnicode_DecodeFSDefault(text + n + 1))
		  : Py_BuildValue("NO", PyUnicode_DecodeFSDefault(text), Py_None);
	Py_DECREF(path);
	return found;
}

/* For operations that are a thread's: call_back(callback, operation). */
static PyObject *call_back_of(PyObject *module, PyObject *args)
{
	PyObject *callback, *operation;

	if (!PyArg_ParseTuple(args, "OO:call_back", &callback, &operation))
		return NULL;
	call_back(callback, operation);
	Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
	{"call_back", call_back_of, METH_VARARGS, NULL},
	{"setup", setup, METH_VARARGS, NULL},
	{"parse_dlpack", parse_dlpack, METH_O, NULL},
	{"divide_dlpack", divide_dlpack, METH_VARARGS,
         "Tensors of DLPack, (offset, code, bits, shape) each, in a tensor of bytes that goes with "
         "the "
         "last."},
	{"find_memory", find_memory, METH_O, "(address, bytes, device) of a buffer."},
	{"add_row", add_row, METH_VARARGS, "Adds a row of a tensor."},
	{"plain_rows", plain_rows, METH_VARARGS,
         "Adds rows of tensors up to one that is not plain, which it returns."},
	{"list_objects", list_objects, METH_VARARGS, "The entries of a list of objects."},
	{"remove_object", remove_object, METH_VARARGS,
         "Removes an object, or nothing if it is not there."},
	{"remove_objects", remove_objects, METH_VARARGS,
         "Removes the objects of URIs with a NUL between them; those that are not there are none."},
	{"copy_object", copy_object, METH_VARARGS,
         "Has the server copy an object, so that no byte of it comes here."},
	{"presign", presign, METH_VARARGS, "A URL of an object, and when it ends in nanoseconds."},
	{"split_array", split_array, METH_O,
         "The names of a file, and of a dataset in it or None."},
	{"reads", reads, METH_VARARGS, "(reads that wait, bytes in flight, the most of them)."},
	{"uri_name", uri_name, METH_O, "The URI without user, password and query."},
	{0},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_core", .m_size = -1,
                                        .m_methods = functions};

/* clang-format off */
#define CONSTANT(name) {#name, SLUICE_OPEN_##name}
static const struct constant {
	const char *name;
	long value;
} constants[] = {
	CONSTANT(READ), CONSTANT(WRITE), CONSTANT(CREATE), CONSTANT(EXCLUSIVE), CONSTANT(REPLACE),
	CONSTANT(DURABLE), CONSTANT(NONBLOCK), CONSTANT(HTTP2), CONSTANT(AS_STORED),
	CONSTANT(UNCACHED),
	{"WRITER_REPLACE", SLUICE_WRITER_REPLACE}, {"WRITER_APPEND", SLUICE_WRITER_APPEND},
	{"WRITER_DURABLE", SLUICE_WRITER_DURABLE}, {"WRITER_ONLY_HDF5", SLUICE_WRITER_ONLY_HDF5},
	{"SERIES_DROP", SLUICE_SERIES_DROP}, {"SERIES_CONTINUE_AT", SLUICE_SERIES_CONTINUE_AT},
	{"SERIES_FLETCHER32", SLUICE_SERIES_FLETCHER32}
};
/* clang-format on */

PyTypeObject *context_type, *file_type, *operation_type, *queue_type;
static const struct {
	const char *name;
	PyType_Spec *spec;
	PyTypeObject **type;
} types[] = {{"Context", &context_spec, &context_type},
             {"Blob", &blob_spec, &blob_type},
             {"Collection", &collection_spec, &collection_type},
             {"File", &file_spec, &file_type},
             {"Frame", &frame_spec, &frame_type},
             {"Series", &series_spec, &series_type},
             {"Store", &store_spec, &store_type},
             {"Watch", &watch_spec, &watch_type},
             {"Writer", &writer_spec, &writer_type},
             {"Load", &load_spec, &load_type},
             {"Operation", &operation_spec, &operation_type},
             {"Queue", &queue_spec, &queue_type},
             {"Save", &save_spec, &save_type},
             {"Tensors", &tensors_spec, &tensors_type}};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
	PyObject *module = PyModule_Create(&definition);
	int rc = module ? 0 : -1;

	for (size_t i = 0; !rc && i < sizeof(types) / sizeof(types[0]); i++) {
		*types[i].type =
			(PyTypeObject *)PyType_FromModuleAndSpec(module, types[i].spec, NULL);
		rc = *types[i].type ? PyModule_AddObjectRef(module, types[i].name,
		                                            (PyObject *)*types[i].type)
		                    : -1;
	}
	for (size_t i = 0; !rc && i < sizeof(constants) / sizeof(constants[0]); i++)
		rc = PyModule_AddIntConstant(module, constants[i].name, constants[i].value);
	if (!rc)
		rc = PyModule_AddStringConstant(module, "version", sluice_version());
	if (rc)
		Py_CLEAR(module);
	return module;
}
