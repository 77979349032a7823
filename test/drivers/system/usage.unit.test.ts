import { expect, test } from '@jest/globals'
import { parseVersion1, parseVersion2 } from '../../../drivers/system/usage.ts'

// A machine has only one version, so the tests use files of both, as kernels write them.

const mebibyte = 1024 ** 2

test('the driver reads version 1 of control groups', () => {
  const texts = {
    cpu: '69385346\n',
    used: `${20 * mebibyte}\n`,
    memory: `cache 1\ninactive_file 7\ntotal_cache 1\ntotal_inactive_file ${mebibyte}\ntotal_active_file 3\n`,
    disk: '8:16 Read 10\n8:16 Write 20\n8:16 Sync 30\n8:16 Total 30\n8:0 Read 1\n8:0 Write 2\nTotal 33\n',
  }
  const usage = { cpu_ms: 69, memory_bytes: 19 * mebibyte, disk_read_bytes: 11, disk_write_bytes: 22 }
  expect(parseVersion1(texts)).toEqual(usage)
  expect(parseVersion1({ ...texts, disk: 'Total 0\n' })).toMatchObject({
    disk_read_bytes: 0,
    disk_write_bytes: 0,
  })
})

test('the driver reads version 2 of control groups', () => {
  const texts = {
    cpu: 'usage_usec 69385\nuser_usec 60000\nsystem_usec 9385\nnr_periods 0\n',
    used: `${20 * mebibyte}\n`,
    memory: `anon 4096\nfile 8192\nactive_file 3\ninactive_file ${mebibyte}\n`,
    disk: '8:16 rbytes=10 wbytes=20 rios=5 wios=6 dbytes=7 dios=8\n253:0 \n8:0 rbytes=1 wbytes=2 rios=1 wios=1 dbytes=0 dios=0\n',
  }
  const usage = { cpu_ms: 69, memory_bytes: 19 * mebibyte, disk_read_bytes: 11, disk_write_bytes: 22 }
  expect(parseVersion2(texts)).toEqual(usage)
  expect(parseVersion2({ ...texts, disk: '' })).toMatchObject({ disk_read_bytes: 0, disk_write_bytes: 0 })
})
