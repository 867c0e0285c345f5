"""Operations on a Kafka cluster: plans that move replicas and leaders, their application, and checks of topics."""
