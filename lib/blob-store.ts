import type { S3ClientConfig } from '@aws-sdk/client-s3'

/** Stores bytes under keys that are never reused. Throws the client's errors; a retry may help. */
export interface BlobStore {
  put(key: string, bytes: Uint8Array): Promise<void>
  /** Throws BlobMissing. */
  get(key: string): Promise<Buffer>
  /** Succeeds if there is no such key. */
  remove(key: string): Promise<void>
}

/** The store answers, and has no such key. */
export class BlobMissing extends Error {
  override readonly name = 'BlobMissing'

  constructor(key: string, cause: unknown) {
    super(`there is no ${key}`, { cause })
  }
}

export interface S3Settings {
  KEELSON_S3_ENDPOINT?: string | undefined
  KEELSON_S3_REGION: string
  KEELSON_S3_BUCKET: string
  KEELSON_S3_ACCESS_KEY?: string | undefined
  KEELSON_S3_SECRET_KEY?: string | undefined
}

/** The bucket of the operator's settings. */
export function makeS3Store(settings: S3Settings): Promise<BlobStore> {
  const { KEELSON_S3_ENDPOINT: endpoint, KEELSON_S3_REGION: region } = settings
  const { KEELSON_S3_ACCESS_KEY: accessKeyId, KEELSON_S3_SECRET_KEY: secretAccessKey } = settings
  return openBucket(settings.KEELSON_S3_BUCKET, {
    region,
    // Not every S3 server has a host name per bucket.
    ...(endpoint ? { endpoint, forcePathStyle: true } : {}),
    // Without keys, the client uses the credentials of the cloud machine.
    ...(accessKeyId && secretAccessKey ? { credentials: { accessKeyId, secretAccessKey } } : {}),
  })
}

/** A bucket on any S3-compatible server. The bucket must exist. */
export async function openBucket(Bucket: string, config: S3ClientConfig): Promise<BlobStore> {
  // Loaded on demand: it takes 20 MiB, and most platforms do not use it.
  const { S3Client, PutObjectCommand, GetObjectCommand, DeleteObjectCommand } = await import(
    '@aws-sdk/client-s3'
  )
  const client = new S3Client(config)
  return {
    async put(Key, Body) {
      await client.send(new PutObjectCommand({ Bucket, Key, Body }))
    },
    async get(Key) {
      const { Body } = await client.send(new GetObjectCommand({ Bucket, Key })).catch((error: unknown) => {
        throw error instanceof Error && error.name === 'NoSuchKey' ? new BlobMissing(Key, error) : error
      })
      if (!Body) throw new Error('the object has no body')
      return Buffer.from(await Body.transformToByteArray())
    },
    async remove(Key) {
      await client.send(new DeleteObjectCommand({ Bucket, Key }))
    },
  }
}
