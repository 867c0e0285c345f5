"""Operations on a Kafka cluster: plan moves of replicas and leaders, apply the plans, and check topics."""
