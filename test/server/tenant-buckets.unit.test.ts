import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { type BlobStore, BlobMissing } from '../../lib/blob-store.ts'
import { makeOutbound, type Outbound } from '../../lib/outbound.ts'
import { type BucketPlace, checkBucket, openTenantBucket } from '../../lib/tenant-buckets.ts'
import { freePort } from '../../script/lib/free-port.ts'
import { hasS3Server, openS3Server, type S3Server } from '../support/s3-server.ts'

// Buckets on a server that checks signatures, by the guard of lib/outbound.ts.

const describeS3 = hasS3Server ? describe : describe.skip

let server: S3Server
let outbound: Outbound
let place: BucketPlace

beforeAll(async () => {
  if (!hasS3Server) return
  const port = await freePort()
  server = await openS3Server(port)
  await server.makeBucket('shop')
  outbound = makeOutbound({
    allowed: [`127.0.0.1:${port}`, `shop.s3.test:${port}`],
    lookup: async () => [{ address: '127.0.0.1', family: 4 }],
  })
  place = {
    endpoint: server.endpoint,
    region: 'us-east-1',
    bucket: 'shop',
    path_style: true,
    ...server.access,
  }
})
afterAll(async () => {
  await outbound?.close()
  await server?.close()
})

const open = (over: Partial<BucketPlace> = {}): Promise<BlobStore> =>
  openTenantBucket({ ...place, ...over }, outbound)
const checked = async (over: Partial<BucketPlace>) => checkBucket(await open(over), 'looked/at')

describeS3('a bucket of a tenant', () => {
  test('takes, returns and removes objects of some megabytes', async () => {
    const store = await open()
    const bytes = Buffer.alloc(8 * 1024 ** 2 + 64, 'abcdefg')
    await store.put('a/b-1', bytes)
    expect(await server.keys('shop')).toEqual(['a/b-1'])
    expect((await store.get('a/b-1')).equals(bytes)).toBe(true)
    await store.remove('a/b-1')
    await store.remove('a/b-1')
    expect(await server.keys('shop')).toEqual([])
    await expect(store.get('a/b-1')).rejects.toBeInstanceOf(BlobMissing)
  })

  test('is addressed by its name before that of the endpoint, if path_style is false', async () => {
    const endpoint = server.endpoint.replace('127.0.0.1', 's3.test')
    expect(await checked({ endpoint, path_style: false })).toBeNull()
    // The guard allows this name, and not that of the endpoint itself.
    expect(await checked({ endpoint })).toMatchObject({ reason: 'address_not_allowed' })
  })

  test('is checked by an object that does not stay', async () => {
    expect(await checked({})).toBeNull()
    expect(await server.keys('shop')).toEqual([])
  })

  test.each([
    ['another secret', { secret_access_key: 'another' }, 'credentials_refused', 'SignatureDoesNotMatch'],
    ['another access key', { access_key_id: 'another' }, 'credentials_refused', 'XAdminUserNotFound'],
    ['a bucket that is not there', { bucket: 'none' }, 'no_such_bucket', 'There is no such bucket'],
    ['another region', { region: 'eu-central-9' }, 'wrong_region', 'AuthorizationHeaderMalformed'],
    ['a private endpoint', { endpoint: 'http://10.1.2.3' }, 'address_not_allowed', 'public address'],
  ])('says that it cannot be used with %s', async (_, over, reason, message) => {
    const fault = await checked(over)
    expect(fault).toMatchObject({ step: 'write', reason })
    expect(fault?.message).toContain(message)
  })

  test('says that waiting may help if its server is away', async () => {
    const store = await open()
    await server.stop()
    await expect(store.put('a', Buffer.from('1'))).rejects.toMatchObject({
      reason: 'unreachable',
      passes: true,
      message: 'Its endpoint does not answer: It refuses connections',
    })
    await server.start()
    await store.put('a', Buffer.from('1'))
    expect(await server.keys('shop')).toEqual(['a'])
  })
})
