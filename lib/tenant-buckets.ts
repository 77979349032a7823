import { Readable } from 'node:stream'
import type { S3ClientConfig } from '@aws-sdk/client-s3'
import { type BlobStore, BlobMissing, openBucket } from './blob-store.ts'
import { AddressNotAllowed, NoAnswer, type Outbound } from './outbound.ts'

// A tenant's bucket, which the platform reaches only by the guard of lib/outbound.ts.

export interface BucketPlace {
  /** http or https, without a path. */
  endpoint: string
  region: string
  bucket: string
  /** `endpoint/bucket/key` instead of `bucket.endpoint/key`. */
  path_style: boolean
  access_key_id: string
  secret_access_key: string
}

export const bucketFaults = [
  'address_not_allowed',
  'unreachable',
  'no_such_bucket',
  'credentials_refused',
  'permission_denied',
  'wrong_region',
  'refused',
] as const
export type BucketFaultReason = (typeof bucketFaults)[number]

/** A request to a bucket failed. The message is for its owner. */
export class BucketFault extends Error {
  override readonly name = 'BucketFault'
  readonly reason: BucketFaultReason
  /** Waiting may help. */
  readonly passes: boolean

  constructor(reason: BucketFaultReason, message: string, cause: unknown, passes = false) {
    super(message, { cause })
    this.reason = reason
    this.passes = passes
  }
}

const answersWithinMs = 60_000
/** Of any answer; a part of a backup is half as large. What is cut off here does not open. */
const mostBytes = 16 * 1024 ** 2

/** Throws BucketFault and BlobMissing. */
export async function openTenantBucket(
  { endpoint, region, bucket, path_style, access_key_id, secret_access_key }: BucketPlace,
  outbound: Pick<Outbound, 'fetch'>,
  withinMs = answersWithinMs,
): Promise<BlobStore> {
  const store = await openBucket(bucket, {
    endpoint,
    region,
    forcePathStyle: path_style,
    credentials: { accessKeyId: access_key_id, secretAccessKey: secret_access_key },
    requestHandler: handlerOf(outbound, withinMs),
    // The caller decides whether to wait.
    maxAttempts: 1,
    // Other servers do not know the newer checksums.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    // undici refuses the header.
    expectContinueHeader: false,
  })
  return {
    put: (key, bytes) => explained(store.put(key, bytes)),
    get: (key) => explained(store.get(key)),
    remove: (key) => explained(store.remove(key)),
  }
}

const explained = <T>(answer: Promise<T>): Promise<T> =>
  answer.catch((error: unknown) => {
    throw error instanceof BlobMissing ? error : faultOf(error)
  })

/** What failed, when an object was written, read and removed. */
export interface BucketCheck {
  step: 'write' | 'read' | 'delete'
  reason: BucketFaultReason
  message: string
}

/** Writes, reads and removes a small object. Null: all three can be done. */
export async function checkBucket(store: BlobStore, key: string): Promise<BucketCheck | null> {
  const bytes = Buffer.from('Keelson checks that it can write, read and delete objects here.\n')
  const steps: [BucketCheck['step'], () => Promise<unknown>][] = [
    ['write', () => store.put(key, bytes)],
    [
      'read',
      async () => {
        if (!(await store.get(key)).equals(bytes))
          throw new BucketFault('refused', 'It does not return the object that was written', null)
      },
    ],
    ['delete', () => store.remove(key)],
  ]
  for (const [step, work] of steps)
    try {
      await work()
    } catch (error) {
      if (error instanceof BlobMissing)
        return { step, reason: 'refused', message: 'It does not have the object that was written' }
      if (!(error instanceof BucketFault)) throw error
      return { step, reason: error.reason, message: error.message }
    }
  return null
}

/** A request of the SDK. */
interface Asked {
  protocol: string
  hostname: string
  port?: number
  path: string
  query: Record<string, string | string[] | null>
  method: string
  headers: Record<string, string>
  body?: Uint8Array
}

/** Makes the SDK's requests by the guard. */
function handlerOf(
  outbound: Pick<Outbound, 'fetch'>,
  withinMs: number,
): NonNullable<S3ClientConfig['requestHandler']> {
  return {
    async handle({ protocol, hostname, port, path, query, method, headers, body }: Asked) {
      const asked = Object.entries(query).map(
        ([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(String(value ?? ''))}`,
      )
      const url = `${protocol}//${hostname}${port ? `:${port}` : ''}${path}${asked.length ? `?${asked.join('&')}` : ''}`
      const answer = await outbound.fetch(url, {
        method: method as 'GET' | 'PUT' | 'DELETE',
        headers,
        ...(body === undefined ? {} : { body }),
        withinMs,
        mostBytes,
      })
      const flat = Object.entries(answer.headers).map(([name, value]) => [name, String(value)])
      const response = {
        statusCode: answer.status,
        headers: Object.fromEntries(flat) as Record<string, string>,
        body: Readable.from([answer.body], { objectMode: false }),
      }
      return { response }
    },
    updateHttpClientConfig: () => {},
    httpHandlerConfigs: () => ({}),
  }
}

const refusesCredentials = [
  'InvalidAccessKeyId',
  'SignatureDoesNotMatch',
  'InvalidToken',
  'ExpiredToken',
  'XAdminUserNotFound', // Versity's
]
const isElsewhere = ['PermanentRedirect', 'TemporaryRedirect', 'AuthorizationHeaderMalformed']

function faultOf(error: unknown): BucketFault {
  if (error instanceof AddressNotAllowed)
    return new BucketFault('address_not_allowed', 'Its endpoint does not lead to a public address', error)
  if (error instanceof NoAnswer)
    return new BucketFault('unreachable', `Its endpoint does not answer: ${error.message}`, error, true)
  const { name, status } = answerIn(error)
  const said = `(${[status, name].filter(Boolean).join(' ')})`
  if (name === 'NoSuchBucket') return new BucketFault('no_such_bucket', 'There is no such bucket', error)
  if (refusesCredentials.includes(name))
    return new BucketFault('credentials_refused', `It refuses the access key or its secret ${said}`, error)
  if (isElsewhere.includes(name) || status === 301 || status === 307)
    return new BucketFault('wrong_region', `It is in another region, or at another endpoint ${said}`, error)
  if (status === 401 || status === 403)
    return new BucketFault('permission_denied', `The access key has no permission for this ${said}`, error)
  if (status >= 500 || status === 429)
    return new BucketFault('unreachable', `It is not available ${said}`, error, true)
  return new BucketFault('refused', `It does not do what was asked, or is not an S3 server ${said}`, error)
}

/** The name of an error comes from the other side: only names are passed on. */
function answerIn(error: unknown): { name: string; status: number } {
  const { name, $metadata } = Object(error) as { name?: unknown; $metadata?: { httpStatusCode?: number } }
  const isName = typeof name === 'string' && /^[A-Za-z]{1,60}$/.test(name)
  return { name: isName ? name : '', status: $metadata?.httpStatusCode ?? 0 }
}
