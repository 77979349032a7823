import { expect, test } from '@jest/globals'
import { insideQuery, outsideLocation, readRegistryPath } from '../../api/deploy/registry-paths.ts'

const own = '0123456789ab'
const digest = `sha256:${'a'.repeat(64)}`

test.each([
  ['manifests/v1.2', 'manifest', 'v1.2'],
  [`manifests/${digest}`, 'manifest', digest],
  [`blobs/${digest}`, 'blob', digest],
  ['blobs/uploads/', 'uploads', ''],
  ['blobs/uploads/0b-1_c', 'upload', '0b-1_c'],
  ['tags/list', 'tags', ''],
])('a registry has the path %s', (rest, what, name) => {
  expect(readRegistryPath(`/v2/${own}/team/shop/${rest}`)).toMatchObject({
    what,
    name,
    server: own,
    image: 'team/shop',
  })
})

test.each([
  `/v2/${own}/shop/manifests/../../x`,
  `/v2/${own}/sh%2fop/manifests/v1`,
  `/v2/${own}/shop/manifests/v1/x`,
  `/v2/${own}//manifests/v1`,
  `/v2/${own}/shop/blobs/uploads/../x`,
  `/v2/${own}/-shop/manifests/v1`,
  `/v2/${own}/${'x'.repeat(201)}/manifests/v1`,
  `/v2/other/shop/manifests/v1`,
  `/v2/${own}/shop/manifests/v1\n`,
])('a registry has no path %j', (path) => {
  expect(readRegistryPath(path)).toBeNull()
})

test('a location of the registry is told as one of the deploy server’s', () => {
  const state = '_state=a%2Bb%3D'
  for (const at of ['http://registry', ''])
    expect(outsideLocation(`${at}/v2/shop/blobs/uploads/1?${state}`, own)).toBe(
      `/v2/${own}/shop/blobs/uploads/1?${state}`,
    )
})

test('a layer is taken over only from an image of the same registry', () => {
  const query = (from: string) => new URLSearchParams({ mount: digest, from })
  expect(insideQuery(query(`${own}/shop`), own)).toBe(`?mount=${encodeURIComponent(digest)}&from=shop`)
  expect(insideQuery(query('ba9876543210/shop'), own)).toBe('')
  expect(insideQuery(new URLSearchParams(), own)).toBe('')
})
