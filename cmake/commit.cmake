# Writes OUT with RLV_COMMIT, the short hash of HEAD ("-dirty" when tracked files differ,
# "unknown" outside git). Runs at every build; the file is rewritten only when it changes.
execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse --show-cdup
	OUTPUT_VARIABLE up RESULT_VARIABLE rc ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
set(commit unknown)
# A non-empty --show-cdup means that the repository belongs to a folder above ours.
if(rc EQUAL 0 AND up STREQUAL "")
	execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
		OUTPUT_VARIABLE out RESULT_VARIABLE rc ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
	if(rc EQUAL 0)
		set(commit ${out})
	endif()
endif()
set(text "#define RLV_COMMIT \"${commit}\"\n")
set(old "")
if(EXISTS ${OUT})
	file(READ ${OUT} old)
endif()
if(NOT old STREQUAL text)
	file(WRITE ${OUT} "${text}")
endif()
